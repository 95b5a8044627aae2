package deploy

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// The part of the Kubernetes API that the manifests use, and no more: a misspelt or
// misplaced field fails to parse.
type (
	labels map[string]string

	metadata struct {
		Name   string `yaml:"name"`
		Labels labels `yaml:"labels"`
	}

	// object is any resource.
	object struct {
		APIVersion string   `yaml:"apiVersion"`
		Kind       string   `yaml:"kind"`
		Metadata   metadata `yaml:"metadata"`
		Spec       any      `yaml:"spec"`
		file, text string
	}

	selector struct {
		MatchLabels labels `yaml:"matchLabels"`
	}

	deployment struct {
		Replicas int      `yaml:"replicas"`
		Selector selector `yaml:"selector"`
		Strategy struct {
			RollingUpdate struct {
				MaxSurge       int `yaml:"maxSurge"`
				MaxUnavailable int `yaml:"maxUnavailable"`
			} `yaml:"rollingUpdate"`
		} `yaml:"strategy"`
		Template template `yaml:"template"`
	}

	batchJob struct {
		BackoffLimit         int    `yaml:"backoffLimit"`
		PodReplacementPolicy string `yaml:"podReplacementPolicy"`
		PodFailurePolicy     struct {
			Rules []failureRule `yaml:"rules"`
		} `yaml:"podFailurePolicy"`
		Template template `yaml:"template"`
	}

	failureRule struct {
		Action      string `yaml:"action"`
		OnExitCodes struct {
			ContainerName string `yaml:"containerName"`
			Operator      string `yaml:"operator"`
			Values        []int  `yaml:"values"`
		} `yaml:"onExitCodes"`
		OnPodConditions []struct {
			Type   string `yaml:"type"`
			Status string `yaml:"status"`
		} `yaml:"onPodConditions"`
	}

	template struct {
		Metadata metadata `yaml:"metadata"`
		Spec     pod      `yaml:"spec"`
	}

	pod struct {
		RestartPolicy                 string `yaml:"restartPolicy"`
		AutomountServiceAccountToken  *bool  `yaml:"automountServiceAccountToken"`
		EnableServiceLinks            *bool  `yaml:"enableServiceLinks"`
		TerminationGracePeriodSeconds int    `yaml:"terminationGracePeriodSeconds"`
		SecurityContext               struct {
			RunAsNonRoot        bool   `yaml:"runAsNonRoot"`
			RunAsUser           int    `yaml:"runAsUser"`
			RunAsGroup          int    `yaml:"runAsGroup"`
			FSGroup             int    `yaml:"fsGroup"`
			FSGroupChangePolicy string `yaml:"fsGroupChangePolicy"`
			SeccompProfile      struct {
				Type string `yaml:"type"`
			} `yaml:"seccompProfile"`
		} `yaml:"securityContext"`
		TopologySpreadConstraints []struct {
			MaxSkew           int      `yaml:"maxSkew"`
			TopologyKey       string   `yaml:"topologyKey"`
			WhenUnsatisfiable string   `yaml:"whenUnsatisfiable"`
			LabelSelector     selector `yaml:"labelSelector"`
		} `yaml:"topologySpreadConstraints"`
		Containers []container `yaml:"containers"`
		Volumes    []volume    `yaml:"volumes"`
	}

	container struct {
		Name  string   `yaml:"name"`
		Image string   `yaml:"image"`
		Args  []string `yaml:"args"`
		Ports []struct {
			Name          string `yaml:"name"`
			ContainerPort int    `yaml:"containerPort"`
		} `yaml:"ports"`
		Resources struct {
			Requests map[string]string `yaml:"requests"`
			Limits   map[string]string `yaml:"limits"`
		} `yaml:"resources"`
		StartupProbe   probe `yaml:"startupProbe"`
		ReadinessProbe probe `yaml:"readinessProbe"`
		LivenessProbe  probe `yaml:"livenessProbe"`
		Lifecycle      struct {
			PreStop struct {
				Sleep struct {
					Seconds int `yaml:"seconds"`
				} `yaml:"sleep"`
			} `yaml:"preStop"`
		} `yaml:"lifecycle"`
		SecurityContext struct {
			AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
			ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
			Capabilities             struct {
				Drop []string `yaml:"drop"`
			} `yaml:"capabilities"`
		} `yaml:"securityContext"`
		VolumeMounts []struct {
			Name      string `yaml:"name"`
			MountPath string `yaml:"mountPath"`
			ReadOnly  bool   `yaml:"readOnly"`
		} `yaml:"volumeMounts"`
	}

	probe struct {
		HTTPGet struct {
			Path string `yaml:"path"`
			Port string `yaml:"port"`
		} `yaml:"httpGet"`
		TCPSocket struct {
			Port string `yaml:"port"`
		} `yaml:"tcpSocket"`
		PeriodSeconds    int `yaml:"periodSeconds"`
		TimeoutSeconds   int `yaml:"timeoutSeconds"`
		FailureThreshold int `yaml:"failureThreshold"`
	}

	volume struct {
		Name                  string `yaml:"name"`
		PersistentVolumeClaim struct {
			ClaimName string `yaml:"claimName"`
			ReadOnly  bool   `yaml:"readOnly"`
		} `yaml:"persistentVolumeClaim"`
		Secret struct {
			SecretName  string `yaml:"secretName"`
			DefaultMode int    `yaml:"defaultMode"`
		} `yaml:"secret"`
		ConfigMap struct {
			Name string `yaml:"name"`
		} `yaml:"configMap"`
		EmptyDir struct {
			SizeLimit string `yaml:"sizeLimit"`
		} `yaml:"emptyDir"`
	}

	service struct {
		ClusterIP string `yaml:"clusterIP"`
		Selector  labels `yaml:"selector"`
		Ports     []struct {
			Name       string `yaml:"name"`
			Port       int    `yaml:"port"`
			TargetPort string `yaml:"targetPort"`
		} `yaml:"ports"`
	}

	disruptionBudget struct {
		MaxUnavailable int      `yaml:"maxUnavailable"`
		Selector       selector `yaml:"selector"`
	}

	claim struct {
		AccessModes []string `yaml:"accessModes"`
		Resources   struct {
			Requests map[string]string `yaml:"requests"`
		} `yaml:"resources"`
	}

	networkPolicy struct {
		PodSelector selector  `yaml:"podSelector"`
		PolicyTypes []string  `yaml:"policyTypes"`
		Ingress     []traffic `yaml:"ingress"`
		Egress      []traffic `yaml:"egress"`
	}

	traffic struct {
		From  []peer `yaml:"from"`
		To    []peer `yaml:"to"`
		Ports []struct {
			Protocol string `yaml:"protocol"`
			Port     string `yaml:"port"` // name or number
		} `yaml:"ports"`
	}

	peer struct {
		PodSelector       selector `yaml:"podSelector"`
		NamespaceSelector selector `yaml:"namespaceSelector"`
	}

	autoscaler struct {
		ScaleTargetRef struct {
			APIVersion string `yaml:"apiVersion"`
			Kind       string `yaml:"kind"`
			Name       string `yaml:"name"`
		} `yaml:"scaleTargetRef"`
		MinReplicas int `yaml:"minReplicas"`
		MaxReplicas int `yaml:"maxReplicas"`
		Metrics     []struct {
			Type string `yaml:"type"`
			Pods struct {
				Metric struct {
					Name string `yaml:"name"`
				} `yaml:"metric"`
				Target struct {
					Type         string `yaml:"type"`
					AverageValue string `yaml:"averageValue"`
				} `yaml:"target"`
			} `yaml:"pods"`
		} `yaml:"metrics"`
		Behavior map[string]struct {
			StabilizationWindowSeconds int `yaml:"stabilizationWindowSeconds"`
			Policies                   []struct {
				Type          string `yaml:"type"`
				Value         int    `yaml:"value"`
				PeriodSeconds int    `yaml:"periodSeconds"`
			} `yaml:"policies"`
		} `yaml:"behavior"`
	}

	podMonitor struct {
		Selector            selector `yaml:"selector"`
		PodMetricsEndpoints []struct {
			Port          string `yaml:"port"`
			Path          string `yaml:"path"`
			Interval      string `yaml:"interval"`
			Authorization struct {
				Type        string `yaml:"type"`
				Credentials struct {
					Name string `yaml:"name"`
					Key  string `yaml:"key"`
				} `yaml:"credentials"`
			} `yaml:"authorization"`
		} `yaml:"podMetricsEndpoints"`
	}

	kustomization struct {
		APIVersion string   `yaml:"apiVersion"`
		Kind       string   `yaml:"kind"`
		Namespace  string   `yaml:"namespace"`
		Resources  []string `yaml:"resources"`
		Images     []struct {
			Name    string `yaml:"name"`
			NewName string `yaml:"newName"`
			NewTag  string `yaml:"newTag"`
		} `yaml:"images"`
		ConfigMapGenerator []struct {
			Name  string   `yaml:"name"`
			Files []string `yaml:"files"`
		} `yaml:"configMapGenerator"`
		GeneratorOptions struct {
			DisableNameSuffixHash bool `yaml:"disableNameSuffixHash"`
		} `yaml:"generatorOptions"`
		Patches []struct {
			Target struct {
				Kind string `yaml:"kind"`
				Name string `yaml:"name"`
			} `yaml:"target"`
			Patch string `yaml:"patch"`
		} `yaml:"patches"`
	}

	adapterValues struct {
		Prometheus struct {
			URL  string `yaml:"url"`
			Port int    `yaml:"port"`
		} `yaml:"prometheus"`
		Rules struct {
			Default bool `yaml:"default"`
			Custom  []struct {
				SeriesQuery string `yaml:"seriesQuery"`
				Resources   struct {
					Overrides map[string]map[string]string `yaml:"overrides"`
				} `yaml:"resources"`
				Name struct {
					As string `yaml:"as"`
				} `yaml:"name"`
				MetricsQuery string `yaml:"metricsQuery"`
			} `yaml:"custom"`
		} `yaml:"rules"`
	}
)

// parse strictly decodes a file of one document.
func parse[T any](t *testing.T, path string) T {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return decode[T](t, path, string(data))
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
		"Deployment": "apps/v1", "Job": "batch/v1", "Service": "v1", "PersistentVolumeClaim": "v1", "PodDisruptionBudget": "policy/v1",
		"NetworkPolicy": "networking.k8s.io/v1", "HorizontalPodAutoscaler": "autoscaling/v2", "PodMonitor": "monitoring.coreos.com/v1",
	}
}

// cluster is the result of applying autoscale, which includes base.
type cluster struct {
	base, scale kustomization
	objects     map[string]object   // by kind and name, such as Service/easyrl-trainer
	pods        map[string]template // by workload name
}

func readCluster(t *testing.T) cluster {
	t.Helper()
	c := cluster{base: parse[kustomization](t, "kubernetes/base/kustomization.yaml"),
		scale:   parse[kustomization](t, "kubernetes/autoscale/kustomization.yaml"),
		objects: map[string]object{}, pods: map[string]template{}}
	for folder, k := range map[string]kustomization{"kubernetes/base": c.base, "kubernetes/autoscale": c.scale} {
		require.Equal(t, "easyrl", k.Namespace)
		for _, resource := range k.Resources {
			path := filepath.Join(folder, resource)
			if !strings.HasSuffix(path, ".yaml") {
				require.Equal(t, "kubernetes/base", path)
				continue
			}
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			for _, text := range strings.Split(string(data), "\n---\n") {
				o := decode[object](t, path, text)
				o.file, o.text = path, text
				key := o.Kind + "/" + o.Metadata.Name
				require.Equal(t, apis()[o.Kind], o.APIVersion, "%s: %s", path, key)
				require.NotContains(t, c.objects, key, path)
				require.Equal(t, "easyrl", o.Metadata.Labels["app.kubernetes.io/name"], "%s: %s", path, key)
				c.objects[key] = o
			}
		}
	}
	for _, o := range c.objects {
		switch o.Kind {
		case "Deployment":
			c.pods[o.Metadata.Name] = spec[deployment](t, o).Template
		case "Job":
			c.pods[o.Metadata.Name] = spec[batchJob](t, o).Template
		}
	}
	require.Len(t, c.pods, 2)
	return c
}
