package install

import (
	"cmp"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kedge-dev/kedge/internal/agentnames"
)

const healthPort = 8080

func (o Options) deployment() *appsv1.Deployment {
	replicas := int32(cmp.Or(o.Replicas, 1))
	one, none := intstr.FromInt32(1), intstr.FromInt32(0)
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: o.meta(o.AgentNamespace, agentName),
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			// The new pod waits until the old one releases the Lease, so that two versions never apply at the same time
			// and the agent is always available.
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &one, MaxUnavailable: &none},
			},
			Selector: &metav1.LabelSelector{MatchLabels: o.selector()},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: o.labels()},
				Spec:       o.podSpec(),
			},
		},
	}
}

func (o Options) podSpec() corev1.PodSpec {
	yes := true
	return corev1.PodSpec{
		ServiceAccountName:        agentName,
		TopologySpreadConstraints: o.spread(),
		// No user or group is set, so that clusters that assign them (OpenShift) accept the pod. The image runs as a
		// numeric user that is not root.
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   &yes,
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{o.container()},
		Volumes:    o.volumes(),
	}
}

// spread schedules replicas on different nodes if possible.
func (o Options) spread() []corev1.TopologySpreadConstraint {
	if o.Replicas < 2 {
		return nil
	}
	return []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector: &metav1.LabelSelector{MatchLabels: o.selector()},
	}}
}

func (o Options) selector() map[string]string {
	return map[string]string{"app.kubernetes.io/name": agentName, LabelInstall: o.Agent.Name}
}

func (o Options) container() corev1.Container {
	yes, no := true, false
	return corev1.Container{
		Name:         agentName,
		Image:        o.Image,
		Args:         o.args(),
		Env:          []corev1.EnvVar{fieldEnv("POD_NAME", "metadata.name"), fieldEnv("POD_NAMESPACE", "metadata.namespace")},
		Ports:        []corev1.ContainerPort{{Name: "health", ContainerPort: healthPort}},
		VolumeMounts: o.mounts(),
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no,
			ReadOnlyRootFilesystem:   &yes,
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		LivenessProbe:  httpProbe("/livez"),
		ReadinessProbe: httpProbe("/readyz"),
		// No CPU limit: throttling would delay syncs and heartbeats.
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse("10m"),
				corev1.ResourceMemory: resource.MustParse("64Mi"),
			},
			Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")},
		},
	}
}

func (o Options) args() []string {
	args := []string{"--server-address=" + o.ServerAddress, "--token-file=" + tokenDir + "/" + o.tokenKey(), "--token-secret=" + o.tokenSecretName()}
	if len(o.CAPEM) > 0 {
		args = append(args, "--ca-cert-file="+caDir+"/"+caKey)
	}
	if o.Agent.EngineNamespace != "" {
		args = append(args, "--argocd-namespace="+o.Agent.EngineNamespace)
	}
	if o.Agent.Tunnel {
		args = append(args, "--tunnel")
	}
	return append(args, "--policy-file="+policyDir+"/"+agentnames.PolicyKey, "--listen=:8080")
}

func (o Options) mounts() []corev1.VolumeMount {
	mounts := []corev1.VolumeMount{{Name: "token", MountPath: tokenDir, ReadOnly: true}}
	if len(o.CAPEM) > 0 {
		mounts = append(mounts, corev1.VolumeMount{Name: "ca", MountPath: caDir, ReadOnly: true})
	}
	return append(mounts, corev1.VolumeMount{Name: "policy", MountPath: policyDir, ReadOnly: true})
}

func (o Options) volumes() []corev1.Volume {
	volumes := []corev1.Volume{secretVolume("token", o.tokenSecretName())}
	if len(o.CAPEM) > 0 {
		volumes = append(volumes, secretVolume("ca", caSecret))
	}
	return append(volumes, policyVolume())
}

// policyVolume mounts the policy of the cluster's owner. The ConfigMap is not part of the manifest, so that neither an
// upgrade nor the server that generates the manifest can change it.
func policyVolume() corev1.Volume {
	yes := true
	return corev1.Volume{Name: "policy", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: agentnames.Policy}, Optional: &yes,
	}}}
}

func secretVolume(name, secret string) corev1.Volume {
	// The default mode lets every user of the pod read the files: its user is not known in advance.
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: secret},
	}}
}

func fieldEnv(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: path},
	}}
}

func httpProbe(path string) *corev1.Probe {
	return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(healthPort)},
	}}
}
