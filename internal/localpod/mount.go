package localpod

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Remount updates the mounted files from the cluster, as a kubelet does.
func (p *Pod) Remount(ctx context.Context) error {
	_, err := p.mountAll(ctx, p.spec.Containers[0].VolumeMounts, p.spec.Volumes)
	return err
}

func (p *Pod) mountAll(ctx context.Context, mounts []mount, volumes []volume) (map[string]string, error) {
	folders := map[string]string{}
	for _, m := range mounts {
		i := slices.IndexFunc(volumes, func(v volume) bool { return v.Name == m.Name })
		if i < 0 {
			return nil, fmt.Errorf("volume %q is mounted but not declared", m.Name)
		}
		folder := filepath.Join(p.cfg.Dir, "mounts", m.Name)
		if err := p.fill(ctx, folder, volumes[i]); err != nil {
			return nil, fmt.Errorf("mounting volume %q: %w", m.Name, err)
		}
		folders[m.MountPath] = folder
	}
	return folders, nil
}

// fill writes the files of a Secret or ConfigMap volume.
func (p *Pod) fill(ctx context.Context, folder string, v volume) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	switch {
	case v.Secret != nil:
		var content struct {
			Data map[string][]byte `json:"data"`
		}
		if err := p.get(ctx, &content, "secret", v.Secret.SecretName); err != nil {
			return err
		}
		return writeFiles(folder, content.Data)
	case v.ConfigMap != nil:
		var content struct {
			Data map[string]string `json:"data"`
		}
		if err := p.get(ctx, &content, "configmap", v.ConfigMap.Name); err != nil && (!v.ConfigMap.Optional || !errors.Is(err, errNotFound)) {
			return err
		}
		files := map[string][]byte{}
		for name, text := range content.Data {
			files[name] = []byte(text)
		}
		return writeFiles(folder, files)
	}
	return nil // such as emptyDir
}

// writeFiles replaces the files of a folder. It replaces each file atomically, because a process may be reading it.
func writeFiles(folder string, files map[string][]byte) error {
	old, err := os.ReadDir(folder)
	errs := []error{err}
	for _, entry := range old {
		if _, stays := files[entry.Name()]; !stays {
			errs = append(errs, os.Remove(filepath.Join(folder, entry.Name())))
		}
	}
	for name, content := range files {
		next := folder + ".next"
		if err := os.WriteFile(next, content, 0o600); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, os.Rename(next, filepath.Join(folder, name)))
	}
	return errors.Join(errs...)
}
