package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
)

// tool returns the path of a checking program. It skips the test if the program is
// missing or EASYRL_DEPLOY_CHECK is not set: versions report different faults, so these
// checks are opt-in.
func tool(t *testing.T, name string) string {
	t.Helper()
	if os.Getenv("EASYRL_DEPLOY_CHECK") == "" {
		t.Skip("EASYRL_DEPLOY_CHECK is not set")
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("no %s on this machine", name)
	}
	return path
}

func require0(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", cmd, out)
	return string(out)
}

// settings returns a unit's settings by section and key.
func settings(t *testing.T, path string) map[string][]string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	found, section := map[string][]string{}, ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		key, value, ok := strings.Cut(line, "=")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			section = strings.Trim(line, "[]")
		default:
			require.True(t, ok, "%s: %q", path, line)
			found[section+"."+key] = append(found[section+"."+key], value)
		}
	}
	return found
}

func TestUnits(t *testing.T) {
	t.Parallel()
	serve, train := settings(t, "systemd/easyrl-serve@.service"), settings(t, "systemd/easyrl-train.service")
	for name, unit := range map[string]map[string][]string{"serve": serve, "train": train} {
		require.Equal(t, []string{"2"}, unit["Service.RestartPreventExitStatus"], name)
		require.Equal(t, []string{"on-failure"}, unit["Service.Restart"], name)
		require.Equal(t, []string{"yes"}, unit["Service.NoNewPrivileges"], name)
		require.Equal(t, []string{"token:/etc/easyrl/token"}, unit["Service.LoadCredential"], name)
		require.Contains(t, unit["Service.ExecStart"][0], "%d/token", name)
	}
	require.Equal(t, []string{"3"}, train["Service.SuccessExitStatus"])
	require.Contains(t, train["Service.ExecStart"][0], " -resume ")

	given, err := os.ReadFile("systemd/serve.env")
	require.NoError(t, err)
	names := regexp.MustCompile(`(?m)^([A-Z]+)=`).FindAllStringSubmatch(string(given), -1)
	var want []string
	for _, name := range names {
		want = append(want, name[1])
	}
	var used []string
	for _, name := range regexp.MustCompile(`\$\{?([A-Z]+)`).FindAllStringSubmatch(serve["Service.ExecStart"][0], -1) {
		used = append(used, name[1])
	}
	require.Equal(t, want, used)
}

// The configuration on the fleets page is valid.
func TestFleetsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/fleets.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.Len(t, blocks, 1)
	overlay := filepath.Join(t.TempDir(), "fleet.toml")
	require.NoError(t, os.WriteFile(overlay, []byte(blocks[0][1]), 0o600))
	run, err := configs.Load([]string{"kubernetes/base/run.toml", overlay}, nil)
	require.NoError(t, err)
	require.Len(t, run.Inference.Endpoints, 3)
	for path := range strings.FieldsSeq(regexp.MustCompile(`[^A-Za-z0-9/@._-]`).ReplaceAllString(string(page), " ")) {
		if strings.HasPrefix(path, "deploy/") {
			_, err := os.Stat(filepath.Join("..", path))
			require.NoError(t, err)
		}
	}
}

// systemd reads the units without complaint and rates their exposure low, where 0 is
// none and 10 is full.
func TestSystemdAcceptsUnits(t *testing.T) {
	t.Parallel()
	analyze := tool(t, "systemd-analyze")
	for path, name := range map[string]string{
		"systemd/easyrl-serve@.service": "easyrl-serve@8000.service",
		"systemd/easyrl-train.service":  "easyrl-train.service",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			unit, err := os.ReadFile(path)
			require.NoError(t, err)
			file := filepath.Join(t.TempDir(), name)
			executable := strings.ReplaceAll(string(unit), "/usr/local/bin/easyrl", "/bin/sh") // an existing executable
			require.NoError(t, os.WriteFile(file, []byte(executable), 0o600))
			require.Empty(t, require0(t, exec.Command(analyze, "verify", "--man=no", file)))
			require0(t, exec.Command(analyze, "security", "--offline=true", "--threshold=20", "--no-pager", file))
		})
	}
}

func TestShellcheckAcceptsScripts(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("slurm/*")
	require.NoError(t, err)
	require.Len(t, scripts, 5)
	scripts = append(scripts, "kubernetes/torch/ranks.sh")
	require0(t, exec.Command(tool(t, "shellcheck"), scripts...))
}

// kustomize builds the folders, the manifests use the images that the Dockerfiles build, and
// this package's tests read the same manifests.
func TestKustomizeBuildsManifests(t *testing.T) {
	t.Parallel()
	kubectl := tool(t, "kubectl")
	c := readCluster(t)
	image := c.base.Images[0].NewName + ":" + c.base.Images[0].NewTag
	for _, folder := range []string{"kubernetes/base", "kubernetes/autoscale"} {
		built := require0(t, exec.Command(kubectl, "kustomize", folder))
		require.Equal(t, 2, strings.Count(built, " image: "+image+"\n"), folder)
		require.Equal(t, folder == "kubernetes/base", strings.Contains(built, "  replicas: 2\n"), folder)
	}
	for name, c := range overlays(t) {
		built := require0(t, exec.Command(kubectl, "kustomize", "kubernetes/"+name))
		for _, image := range slices.Concat(c.base.Images, c.overlay.Images) {
			built = strings.ReplaceAll(built, " image: "+image.NewName+":"+image.NewTag+"\n",
				" image: "+image.Name+"\n")
		}
		count := 0
		for _, text := range strings.Split(strings.ReplaceAll(built, "\n  namespace: easyrl\n", "\n"), "\n---\n") {
			fields := decode[map[string]any](t, name, text)
			if fields["kind"] == "ConfigMap" {
				continue
			}
			key := fields["kind"].(string) + "/" + fields["metadata"].(map[string]any)["name"].(string)
			require.Contains(t, c.objects, key)
			require.Equal(t, sorted(fields), sorted(decode[map[string]any](t, key, c.objects[key].text)), key)
			count++
		}
		require.Len(t, c.objects, count)
	}
}

// sorted returns a value of YAML with sorted lists of maps: kustomize changes their order.
func sorted(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			value[name] = sorted(field)
		}
	case []any:
		for i := range value {
			value[i] = sorted(value[i])
		}
		if len(value) > 0 && reflect.TypeOf(value[0]).Kind() == reflect.Map {
			slices.SortFunc(value, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
	}
	return value
}
