package deploy

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// parse strictly decodes a file of one document.
func parse[T any](t *testing.T, path string) T {
	t.Helper()
	return decode[T](t, path, read(t, path))
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}

func decode[T any](t *testing.T, path, text string) T {
	t.Helper()
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)
	var value T
	require.NoError(t, decoder.Decode(&value), path)
	require.ErrorIs(t, decoder.Decode(&object{}), io.EOF, path)
	return value
}

// spec strictly decodes the object's spec.
func spec[T any](t *testing.T, o object) T {
	t.Helper()
	return decode[struct {
		APIVersion string   `yaml:"apiVersion"`
		Kind       string   `yaml:"kind"`
		Metadata   metadata `yaml:"metadata"`
		Spec       T        `yaml:"spec"`
	}](t, o.file+": "+o.Kind+" "+o.Metadata.Name, o.text).Spec
}

// apis maps the used kinds to their API versions.
func apis() map[string]string {
	return map[string]string{
		"Deployment": "apps/v1", "Job": "batch/v1", "Service": "v1", "PersistentVolumeClaim": "v1",
		"PodDisruptionBudget": "policy/v1",
		"NetworkPolicy":       "networking.k8s.io/v1", "HorizontalPodAutoscaler": "autoscaling/v2",
		"PodMonitor": "monitoring.coreos.com/v1",
	}
}

// cluster is the result of applying an overlay, which includes base.
type cluster struct {
	base, overlay kustomization
	objects       map[string]object   // by kind and name, such as Service/easyrl-trainer
	pods          map[string]template // by workload name
	configMaps    map[string][]string // files by name
}

// readCluster returns what kubernetes/autoscale applies.
func readCluster(t *testing.T) cluster {
	t.Helper()
	return readOverlay(t, "kubernetes/autoscale")
}

// readTorch returns what kubernetes/torch applies.
func readTorch(t *testing.T) cluster {
	t.Helper()
	return readOverlay(t, "kubernetes/torch")
}

func readOverlay(t *testing.T, folder string) cluster {
	t.Helper()
	c := cluster{objects: map[string]object{}, pods: map[string]template{}, configMaps: map[string][]string{}}
	c.overlay = c.apply(t, folder)
	require.Equal(t, "easyrl", c.overlay.Namespace)
	c.base = parse[kustomization](t, "kubernetes/base/kustomization.yaml")
	require.Equal(t, "easyrl", c.base.Namespace)
	for _, o := range c.objects {
		switch o.Kind {
		case "Deployment":
			c.pods[o.Metadata.Name] = spec[deployment](t, o).Template
		case "Job":
			c.pods[o.Metadata.Name] = spec[batchJob](t, o).Template
		}
	}
	return c
}

// apply adds a folder's resources, including those of folders that it names, and patches them.
func (c cluster) apply(t *testing.T, folder string) kustomization {
	t.Helper()
	k := parse[kustomization](t, filepath.Join(folder, "kustomization.yaml"))
	require.True(t, len(k.ConfigMapGenerator) == 0 || k.GeneratorOptions.DisableNameSuffixHash,
		"%s: the names of config maps have suffixes", folder)
	for _, resource := range k.Resources {
		path := filepath.Join(folder, resource)
		if strings.HasSuffix(path, ".yaml") {
			c.add(t, path)
		} else {
			c.apply(t, path)
		}
	}
	for _, made := range k.ConfigMapGenerator {
		require.Equal(t, made.Behavior == "merge", c.configMaps[made.Name] != nil, "%s: config map %s",
			folder, made.Name)
		for _, file := range made.Files {
			require.FileExists(t, filepath.Join(folder, file))
			c.configMaps[made.Name] = append(c.configMaps[made.Name], file)
		}
	}
	for _, p := range k.Patches {
		if p.Path != "" {
			text := read(t, filepath.Join(folder, p.Path))
			of, patch := decode[object](t, p.Path, text), decode[map[string]any](t, p.Path, text)
			c.patch(t, of.Kind+"/"+of.Metadata.Name, func(fields any) any { return merge("", fields, patch) })
			continue
		}
		c.patch(t, p.Target.Kind+"/"+p.Target.Name, func(fields any) any {
			for _, o := range decode[[]operation](t, folder, p.Patch) {
				require.Contains(t, []string{"add", "replace", "remove"}, o.Op)
				fields = o.apply(fields, strings.Split(o.Path, "/")[1:])
			}
			return fields
		})
	}
	return k
}

// add adds the objects of a file.
func (c cluster) add(t *testing.T, path string) {
	t.Helper()
	for _, text := range strings.Split(read(t, path), "\n---\n") {
		o := decode[object](t, path, text)
		o.file, o.text = path, text
		key := o.Kind + "/" + o.Metadata.Name
		require.Equal(t, apis()[o.Kind], o.APIVersion, "%s: %s", path, key)
		require.NotContains(t, c.objects, key, path)
		require.Equal(t, "easyrl", o.Metadata.Labels["app.kubernetes.io/name"], "%s: %s", path, key)
		c.objects[key] = o
	}
}

// patch replaces the fields of an object.
func (c cluster) patch(t *testing.T, key string, change func(fields any) any) {
	t.Helper()
	require.Contains(t, c.objects, key)
	o := c.objects[key]
	text, err := yaml.Marshal(change(decode[map[string]any](t, o.file, o.text)))
	require.NoError(t, err)
	o.text = string(text)
	c.objects[key] = o
}

// operation is one of a JSON patch.
type operation struct {
	Op    string `yaml:"op"`
	Path  string `yaml:"path"`
	Value any    `yaml:"value"`
}

// apply returns in with the operation applied at a path below it. It panics if there is no such
// path.
func (o operation) apply(in any, path []string) any {
	if len(path) == 0 {
		return o.Value
	}
	key, rest := path[0], path[1:]
	if fields, ok := in.(map[string]any); ok {
		if o.Op == "remove" && len(rest) == 0 {
			delete(fields, key)
		} else {
			fields[key] = o.apply(fields[key], rest)
		}
		return fields
	}
	list := in.([]any)
	if key == "-" {
		return append(list, o.Value)
	}
	i, err := strconv.Atoi(key)
	switch {
	case err != nil:
		panic(err)
	case o.Op == "add" && len(rest) == 0:
		return slices.Insert(list, i, o.Value)
	}
	list[i] = o.apply(list[i], rest)
	return list
}

// merge returns into with a strategic merge patch applied: it merges maps, lists of containers
// and the like by the key of their elements, and replaces everything else.
func merge(field string, into, patch any) any {
	switch patch := patch.(type) {
	case map[string]any:
		fields, _ := into.(map[string]any)
		if fields == nil {
			return patch
		}
		for name, value := range patch {
			fields[name] = merge(name, fields[name], value)
		}
		return fields
	case []any:
		list, _ := into.([]any)
		key := map[string]string{"containers": "name", "env": "name", "volumes": "name",
			"volumeMounts": "mountPath"}[field]
		if key == "" {
			return patch
		}
		for _, element := range patch {
			list = mergeElement(list, key, element.(map[string]any))
		}
		return list
	}
	return patch
}

// mergeElement replaces, adds or removes the element of a list with the key of patch.
func mergeElement(list []any, key string, patch map[string]any) []any {
	i := slices.IndexFunc(list, func(e any) bool { return e.(map[string]any)[key] == patch[key] })
	switch {
	case patch["$patch"] == "delete":
		return slices.Delete(list, i, i+1)
	case i < 0:
		return append(list, patch)
	}
	list[i] = merge("", list[i], patch)
	return list
}
