package helm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"

	"helm.sh/helm/v4/pkg/chart/loader/archive"

	"github.com/kedge-dev/kedge/internal/render/alias"
)

// decoded are the files that Helm decodes as YAML when it loads a chart.
var decoded = regexp.MustCompile(`(^|/)(Chart\.(yaml|lock)|values\.yaml|requirements\.(yaml|lock))$`)

// archived are the files that Helm unpacks.
var archived = regexp.MustCompile(`(^|/)charts/[^/]+\.tgz$`)

// checkFile refuses a file that would grow when Helm loads it. budget is the remaining unpacked size of
// archives.
func (b *builder) checkFile(f *archive.BufferedFile, budget *int64) error {
	switch {
	case archived.MatchString(f.Name):
		if err := unpackedSize(bytes.NewReader(f.Data), budget, maxArchives); err != nil {
			return b.problem(f.Name, "%v", err)
		}
	case decoded.MatchString(f.Name):
		if err := checkDecoded(f.Name, f.Data); err != nil {
			return b.problem(f.Name, "%v", err)
		}
	}
	return nil
}

func checkDecoded(name string, data []byte) error {
	if path.Base(name) == "Chart.yaml" && len(data) > maxChartFile {
		return fmt.Errorf("larger than the %d bytes that are allowed for it", maxChartFile)
	}
	return alias.Check(data)
}

var errUnpacked = fmt.Errorf("the archives of the chart unpack to more than the %d bytes that are allowed", maxUnpacked)

// unpackedSize subtracts the unpacked size of an archive from budget, without keeping the content.
func unpackedSize(in io.Reader, budget *int64, depth int) error {
	if depth == 0 {
		return fmt.Errorf("archives in archives, more than %d deep", maxArchives)
	}
	unzipped, err := gzip.NewReader(in)
	if err != nil {
		return fmt.Errorf("not an archive of a chart: %w", err)
	}
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("not an archive of a chart: %w", err)
		}
		// An empty file has a cost too.
		if *budget -= header.Size + 512; *budget < 0 {
			return errUnpacked
		}
		if err := checkArchived(header.Name, files, budget, depth); err != nil {
			return err
		}
	}
}

func checkArchived(name string, file io.Reader, budget *int64, depth int) error {
	if !archived.MatchString(name) && !decoded.MatchString(name) {
		return nil
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return fmt.Errorf("not an archive of a chart: %w", err)
	}
	if archived.MatchString(name) {
		err = unpackedSize(bytes.NewReader(data), budget, depth-1)
	} else {
		err = checkDecoded(name, data)
	}
	if err != nil {
		return fmt.Errorf("%s in it: %w", name, err)
	}
	return nil
}
