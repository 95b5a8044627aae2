package deploy

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
		CompletionMode       string `yaml:"completionMode"`
		Completions          int    `yaml:"completions"`
		Parallelism          int    `yaml:"parallelism"`
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
		Subdomain                     string `yaml:"subdomain"`
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
		Name    string     `yaml:"name"`
		Image   string     `yaml:"image"`
		Command []string   `yaml:"command"`
		Args    []string   `yaml:"args"`
		Env     []variable `yaml:"env"`
		Ports   []struct {
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

	variable struct {
		Name      string `yaml:"name"`
		Value     string `yaml:"value"`
		ValueFrom struct {
			SecretKeyRef struct {
				Name string `yaml:"name"`
				Key  string `yaml:"key"`
			} `yaml:"secretKeyRef"`
		} `yaml:"valueFrom"`
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
			Medium    string `yaml:"medium"`
			SizeLimit string `yaml:"sizeLimit"`
		} `yaml:"emptyDir"`
	}

	service struct {
		ClusterIP                string `yaml:"clusterIP"`
		PublishNotReadyAddresses bool   `yaml:"publishNotReadyAddresses"`
		Selector                 labels `yaml:"selector"`
		Ports                    []struct {
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
			Name     string   `yaml:"name"`
			Behavior string   `yaml:"behavior"`
			Files    []string `yaml:"files"`
		} `yaml:"configMapGenerator"`
		GeneratorOptions struct {
			DisableNameSuffixHash bool `yaml:"disableNameSuffixHash"`
		} `yaml:"generatorOptions"`
		Patches []struct {
			Path   string `yaml:"path"` // of a strategic merge patch
			Target struct {
				Kind string `yaml:"kind"`
				Name string `yaml:"name"`
			} `yaml:"target"`
			Patch string `yaml:"patch"` // a JSON patch
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
