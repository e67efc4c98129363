package install

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const healthPort = 8080

func (o Options) deployment() *appsv1.Deployment {
	selector := map[string]string{"app.kubernetes.io/name": agentName, LabelInstall: o.Agent.Name}
	replicas := int32(1)
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: o.meta(o.AgentNamespace, agentName),
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			// One agent at a time: an upgrade must not have two versions apply side by side.
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Selector: &metav1.LabelSelector{MatchLabels: selector},
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
		ServiceAccountName: agentName,
		// No user or group is named, so that clusters which assign them (OpenShift) accept the pod;
		// the image runs as a numeric user that is not root.
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   &yes,
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{o.container()},
		Volumes:    o.volumes(),
	}
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
		// No CPU limit: being throttled would delay syncs and heartbeats, and buys nothing.
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
	args := []string{"--server-address=" + o.ServerAddress, "--token-file=" + tokenDir + "/" + tokenKey, "--token-secret=" + tokenSecret}
	if len(o.CAPEM) > 0 {
		args = append(args, "--ca-cert-file="+caDir+"/"+caKey)
	}
	return append(args, "--listen=:8080")
}

func (o Options) mounts() []corev1.VolumeMount {
	mounts := []corev1.VolumeMount{{Name: "token", MountPath: tokenDir, ReadOnly: true}}
	if len(o.CAPEM) > 0 {
		mounts = append(mounts, corev1.VolumeMount{Name: "ca", MountPath: caDir, ReadOnly: true})
	}
	return mounts
}

func (o Options) volumes() []corev1.Volume {
	volumes := []corev1.Volume{secretVolume("token", tokenSecret)}
	if len(o.CAPEM) > 0 {
		volumes = append(volumes, secretVolume("ca", caSecret))
	}
	return volumes
}

func secretVolume(name, secret string) corev1.Volume {
	// With the default mode everyone in the pod may read: its user is not known beforehand.
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
