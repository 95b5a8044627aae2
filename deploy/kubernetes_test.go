package deploy

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference/remote"
)

// The names of the workloads.
const (
	instances = "easyrl-instances"
	trainer   = "easyrl-trainer"
	ranks     = "easyrl-ranks"
)

// overlays returns what the folders beside base apply.
func overlays(t *testing.T) map[string]cluster {
	t.Helper()
	all := map[string]cluster{"autoscale": readCluster(t), "torch": readTorch(t)}
	require.Len(t, all["autoscale"].pods, 2)
	require.Len(t, all["torch"].pods, 3)
	return all
}

// selected returns the only workload whose pods carry the labels want.
func (c cluster) selected(t *testing.T, by object, want labels) string {
	t.Helper()
	require.NotEmpty(t, want, "%s: %s %s selects every pod", by.file, by.Kind, by.Metadata.Name)
	var names []string
	for name, pods := range c.pods {
		matches := true
		for key, value := range want {
			matches = matches && pods.Metadata.Labels[key] == value
		}
		if matches {
			names = append(names, name)
		}
	}
	require.Len(t, names, 1, "%s: %s %s selects %v", by.file, by.Kind, by.Metadata.Name, want)
	return names[0]
}

// port returns the number of a workload's named port.
func (c cluster) port(t *testing.T, workload, name string) int {
	t.Helper()
	for _, port := range c.pods[workload].Spec.Containers[0].Ports {
		if port.Name == name {
			return port.ContainerPort
		}
	}
	t.Fatalf("%s has no port %q", workload, name)
	return 0
}

// flag returns the value of a flag in the instances' command line.
func (c cluster) flag(t *testing.T, name string) string {
	t.Helper()
	for _, arg := range c.pods[instances].Spec.Containers[0].Args {
		if value, ok := strings.CutPrefix(arg, "-"+name+"="); ok {
			return value
		}
	}
	t.Fatalf("the instances have no -%s", name)
	return ""
}

func TestSelectorsAndPorts(t *testing.T) {
	t.Parallel()
	for name, c := range overlays(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testSelectorsAndPorts(t, c)
		})
	}
}

func testSelectorsAndPorts(t *testing.T, c cluster) {
	t.Helper()
	for _, o := range c.objects {
		switch o.Kind {
		case "Deployment":
			require.Equal(t, instances, c.selected(t, o, spec[deployment](t, o).Selector.MatchLabels))
		case "Service":
			s := spec[service](t, o)
			pods := c.selected(t, o, s.Selector)
			require.Equal(t, o.Metadata.Name, pods)
			for _, port := range s.Ports {
				require.Equal(t, c.port(t, pods, port.TargetPort), port.Port, o.Metadata.Name)
			}
		case "PodDisruptionBudget":
			require.Equal(t, instances, c.selected(t, o, spec[disruptionBudget](t, o).Selector.MatchLabels))
		case "PodMonitor":
			s := spec[podMonitor](t, o)
			pods := c.selected(t, o, s.Selector.MatchLabels)
			for _, endpoint := range s.PodMetricsEndpoints {
				require.Positive(t, c.port(t, pods, endpoint.Port))
				require.Equal(t, "/metrics", endpoint.Path)
				require.Equal(t, "Bearer", endpoint.Authorization.Type)
				require.Equal(t, "easyrl-token", endpoint.Authorization.Credentials.Name)
				require.Equal(t, filepath.Base(c.flag(t, "token-file")), endpoint.Authorization.Credentials.Key)
			}
		}
	}
	for _, constraint := range c.pods[instances].Spec.TopologySpreadConstraints {
		require.Equal(t, instances, c.selected(t, c.objects["Deployment/"+instances],
			constraint.LabelSelector.MatchLabels))
	}
	require.Equal(t, "None", spec[service](t, c.objects["Service/"+instances]).ClusterIP)
}

// The trainer reaches the instances' port and DNS, Prometheus reaches both workloads,
// and all other traffic is blocked.
func TestNetworkPolicies(t *testing.T) {
	t.Parallel()
	c := readCluster(t)
	prometheus := labels{"kubernetes.io/metadata.name": "monitoring"}
	policies := map[string]networkPolicy{}
	for name, port := range map[string]string{instances: "http", trainer: "control"} {
		o := c.objects["NetworkPolicy/"+name]
		s := spec[networkPolicy](t, o)
		require.Equal(t, name, c.selected(t, o, s.PodSelector.MatchLabels))
		require.Equal(t, []string{"Ingress", "Egress"}, s.PolicyTypes)
		require.Len(t, s.Ingress, 1)
		from := s.Ingress[0].From
		require.Equal(t, prometheus, from[len(from)-1].NamespaceSelector.MatchLabels)
		require.Len(t, s.Ingress[0].Ports, 1)
		require.Equal(t, port, s.Ingress[0].Ports[0].Port)
		require.Positive(t, c.port(t, name, port))
		policies[name] = s
	}
	o, from := c.objects["NetworkPolicy/"+instances], policies[instances].Ingress[0].From
	require.Len(t, from, 2)
	require.Equal(t, trainer, c.selected(t, o, from[0].PodSelector.MatchLabels))
	require.Empty(t, policies[instances].Egress)
	require.Len(t, policies[trainer].Ingress[0].From, 1)
	egress := policies[trainer].Egress
	require.Len(t, egress, 2)
	require.Equal(t, instances, c.selected(t, o, egress[0].To[0].PodSelector.MatchLabels))
	require.Len(t, egress[0].Ports, 1)
	require.Equal(t, "http", egress[0].Ports[0].Port)
	require.Equal(t, "53", egress[1].Ports[0].Port)
}

func TestImagesArePinned(t *testing.T) {
	t.Parallel()
	c := readCluster(t)
	require.Len(t, c.base.Images, 1)
	image := c.base.Images[0]
	require.Regexp(t, `^[a-z0-9.]+/[a-z]+$`, image.NewName)
	require.Regexp(t, `^\d+\.\d+\.\d+$`, image.NewTag)
	for name, pods := range c.pods {
		require.Len(t, pods.Spec.Containers, 1, name)
		require.Equal(t, image.Name, pods.Spec.Containers[0].Image, name)
	}
	dockerfile, err := os.ReadFile("Dockerfile")
	require.NoError(t, err)
	require.Contains(t, string(dockerfile), "-t "+image.NewName+":"+image.NewTag)
	for line := range strings.Lines(string(dockerfile)) {
		if from, ok := strings.CutPrefix(line, "FROM "); ok {
			require.Regexp(t, `^(golang:\d+\.\d+\.\d+-[a-z]+ AS build|scratch)\n$`, from)
		}
	}
}

// startup returns the time that a pod may take to start, in seconds.
func startup(p probe) int { return p.PeriodSeconds * p.FailureThreshold }

func TestProbes(t *testing.T) {
	t.Parallel()
	c := readCluster(t)
	instance := c.pods[instances].Spec
	one := instance.Containers[0]
	for _, p := range []probe{one.StartupProbe, one.ReadinessProbe} {
		require.Equal(t, "/health", p.HTTPGet.Path)
		require.Positive(t, c.port(t, instances, p.HTTPGet.Port))
	}
	require.GreaterOrEqual(t, startup(one.StartupProbe), 600)
	require.Empty(t, one.LivenessProbe.HTTPGet.Path, "a draining instance is alive but not healthy")
	require.Positive(t, c.port(t, instances, one.LivenessProbe.TCPSocket.Port))
	hook := one.Lifecycle.PreStop.Sleep.Seconds
	require.Positive(t, hook)
	require.GreaterOrEqual(t, instance.TerminationGracePeriodSeconds, hook+120)

	run := c.pods[trainer].Spec
	require.Positive(t, c.port(t, trainer, run.Containers[0].ReadinessProbe.TCPSocket.Port))
	require.GreaterOrEqual(t, run.TerminationGracePeriodSeconds, 300)
}

// How the Job treats the exit statuses of easyrl train: 2 fails it, 3 and a lost node
// do not count.
func TestTrainerRestarts(t *testing.T) {
	t.Parallel()
	c := readCluster(t)
	s := spec[batchJob](t, c.objects["Job/"+trainer])
	require.Equal(t, "Failed", s.PodReplacementPolicy)
	require.Equal(t, "Never", s.Template.Spec.RestartPolicy)
	require.Contains(t, s.Template.Spec.Containers[0].Args, "-resume")
	actions := map[int]string{}
	for _, rule := range s.PodFailurePolicy.Rules {
		for _, value := range rule.OnExitCodes.Values {
			require.Equal(t, "In", rule.OnExitCodes.Operator)
			require.Equal(t, s.Template.Spec.Containers[0].Name, rule.OnExitCodes.ContainerName)
			actions[value] = rule.Action
		}
		for _, condition := range rule.OnPodConditions {
			require.Equal(t, "Ignore", rule.Action)
			require.Equal(t, "DisruptionTarget", condition.Type)
			require.Equal(t, "True", condition.Status)
		}
	}
	require.Equal(t, map[int]string{2: "FailJob", 3: "Ignore"}, actions)
}

func TestPodsAreConfined(t *testing.T) {
	t.Parallel()
	for overlay, c := range overlays(t) {
		for name, pods := range c.pods {
			name = overlay + ": " + name
			require.NotNil(t, pods.Spec.AutomountServiceAccountToken, name)
			require.False(t, *pods.Spec.AutomountServiceAccountToken, name)
			require.True(t, pods.Spec.SecurityContext.RunAsNonRoot, name)
			require.Equal(t, 65532, pods.Spec.SecurityContext.RunAsUser, name) // as in the images
			require.Equal(t, 65532, pods.Spec.SecurityContext.FSGroup, name)
			require.Equal(t, "RuntimeDefault", pods.Spec.SecurityContext.SeccompProfile.Type, name)
			one := pods.Spec.Containers[0]
			require.NotNil(t, one.SecurityContext.AllowPrivilegeEscalation, name)
			require.False(t, *one.SecurityContext.AllowPrivilegeEscalation, name)
			require.True(t, one.SecurityContext.ReadOnlyRootFilesystem, name)
			require.Equal(t, []string{"ALL"}, one.SecurityContext.Capabilities.Drop, name)
			require.Equal(t, one.Resources.Requests, one.Resources.Limits, name) // the QoS class that is evicted last
		}
	}
}

func TestVolumes(t *testing.T) {
	t.Parallel()
	for _, c := range overlays(t) {
		for name, pods := range c.pods {
			mounted := map[string]bool{}
			for _, mount := range pods.Spec.Containers[0].VolumeMounts {
				mounted[mount.Name] = true
			}
			volumes := map[string]bool{}
			for _, v := range pods.Spec.Volumes {
				volumes[v.Name] = true
				if claimed := v.PersistentVolumeClaim.ClaimName; claimed != "" {
					require.Contains(t, c.objects, "PersistentVolumeClaim/"+claimed, name)
					require.NotEmpty(t,
						spec[claim](t, c.objects["PersistentVolumeClaim/"+claimed]).Resources.Requests["storage"])
				}
				if v.ConfigMap.Name != "" {
					require.Contains(t, c.configMaps, v.ConfigMap.Name)
				}
				if v.Secret.SecretName != "" {
					require.Equal(t, "easyrl-token", v.Secret.SecretName)
					require.Equal(t, 0o440, v.Secret.DefaultMode)
				}
			}
			require.Equal(t, volumes, mounted, name)
		}
		for _, o := range c.objects {
			require.NotEqual(t, "Secret", o.Kind, "%s: manifests must not contain secrets", o.file)
		}
	}
}

// underMount requires a workload's path to be on one of its volumes.
func (c cluster) underMount(t *testing.T, workload, path string, write bool) {
	t.Helper()
	for _, mount := range c.pods[workload].Spec.Containers[0].VolumeMounts {
		if strings.HasPrefix(path, mount.MountPath+"/") && (!write || !mount.ReadOnly) {
			return
		}
	}
	t.Fatalf("%s: %s is on none of its volumes", workload, path)
}

// easyrl train accepts the run's file, and the file agrees with the manifests.
func TestRunAgreesWithManifests(t *testing.T) {
	t.Parallel()
	c := readCluster(t)
	require.Equal(t, []string{"run.toml"}, c.base.ConfigMapGenerator[0].Files)
	require.True(t, c.base.GeneratorOptions.DisableNameSuffixHash)
	run, err := configs.Load([]string{"kubernetes/base/run.toml"}, nil)
	require.NoError(t, err)
	control := strconv.Itoa(c.port(t, trainer, "control"))
	require.Equal(t, "0.0.0.0:"+control, run.Control.Listen)
	require.Equal(t, remote.EasyRL, run.Inference.Kind)
	cpu := func(workload string) string { return c.pods[workload].Spec.Containers[0].Resources.Limits["cpu"] }
	require.Equal(t, cpu(trainer), strconv.Itoa(run.Device.Threads))
	require.Equal(t, cpu(instances), c.flag(t, "threads"))
	require.Equal(t, run.Model.Path, c.flag(t, "model"))
	require.Equal(t, run.Control.TokenFile, c.flag(t, "token-file"))
	require.Equal(t, run.Inference.TokenFile, c.flag(t, "token-file"))
	require.Zero(t, run.Inference.Instances)
	for _, path := range []string{run.Model.Path, run.Control.TokenFile, run.Data.Train[0]} {
		c.underMount(t, trainer, path, false)
	}
	c.underMount(t, trainer, run.Run.Dir, true)
	c.underMount(t, trainer, c.pods[trainer].Spec.Containers[0].Args[1], false)
	c.underMount(t, instances, c.flag(t, "model"), false)
	c.underMount(t, instances, c.flag(t, "token-file"), false)

	http := strconv.Itoa(c.port(t, instances, "http"))
	require.Equal(t, "0.0.0.0:"+http, c.flag(t, "listen"))
	name, ok := strings.CutSuffix(strings.TrimPrefix(run.Inference.Watch, "dns:"), ":"+http)
	require.True(t, ok, run.Inference.Watch)
	require.Contains(t, c.objects, "Service/"+name)
	require.NotContains(t, c.objects["Service/"+name].text, "publishNotReadyAddresses: true",
		"readiness does not wait for weights, and draining pods must leave DNS")
	require.GreaterOrEqual(t, run.Inference.WaitSeconds, startup(c.pods[instances].Spec.Containers[0].StartupProbe),
		"at least the time that a pod may take to start")
}

func TestAutoscaler(t *testing.T) {
	t.Parallel()
	c := readCluster(t)
	s := spec[autoscaler](t, c.objects["HorizontalPodAutoscaler/"+instances])
	require.Contains(t, c.objects, s.ScaleTargetRef.Kind+"/"+s.ScaleTargetRef.Name)
	require.Equal(t, c.objects["Deployment/"+instances].APIVersion, s.ScaleTargetRef.APIVersion)
	require.Positive(t, s.MinReplicas)
	require.Greater(t, s.MaxReplicas, s.MinReplicas)
	require.ElementsMatch(t, []string{"scaleUp", "scaleDown"}, slices.Collect(maps.Keys(s.Behavior)))
	require.Len(t, s.Metrics, 1)
	require.Equal(t, "Pods", s.Metrics[0].Type)
	require.Equal(t, "AverageValue", s.Metrics[0].Pods.Target.Type)

	rules := parse[adapterValues](t, "kubernetes/autoscale/adapter-values.yaml").Rules.Custom
	require.Len(t, rules, 1)
	require.Equal(t, s.Metrics[0].Pods.Metric.Name, rules[0].Name.As)
	require.Contains(t, rules[0].SeriesQuery, `"vllm:num_requests_waiting"`)

	require.Len(t, c.overlay.Patches, 1)
	require.Equal(t, instances, c.overlay.Patches[0].Target.Name)
	patch := decode[[]map[string]string](t, "autoscale: patch", c.overlay.Patches[0].Patch)
	require.Equal(t, []map[string]string{{"op": "remove", "path": "/spec/replicas"}}, patch)
}
