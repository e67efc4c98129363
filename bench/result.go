package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// result is one figure, as it is appended to the results file.
type result struct {
	Name    string  `json:"name"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	Runs    int     `json:"runs"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
	Floor   float64 `json:"floor,omitempty"`
	Ratio   float64 `json:"ratio,omitempty"`
	Commit  string  `json:"commit"`
	Machine string  `json:"machine"`
}

// report prints a figure and appends it to the results file.
func (r *rigging) report(res result) error {
	res.Commit, res.Machine = r.commit, r.machine
	if res.Floor > 0 {
		res.Ratio = res.Value / res.Floor
	}
	line := fmt.Sprintf("%-48s %10.3f %-4s (min %.3f, max %.3f, %d runs)", res.Name, res.Value, res.Unit, res.Min, res.Max, res.Runs)
	if res.Floor > 0 {
		line += fmt.Sprintf("  floor %.3f, ratio %.2f", res.Floor, res.Ratio)
	}
	fmt.Println(line)
	raw, err := json.Marshal(res)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(r.out), 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(r.out, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(append(raw, '\n'))
	return err
}

// reportAll reports figures in their order.
func (r *rigging) reportAll(all ...result) error {
	for _, res := range all {
		if err := r.report(res); err != nil {
			return err
		}
	}
	return nil
}

// single is a figure that was measured once.
func single(name string, value float64, unit string) result {
	return result{Name: name, Value: value, Unit: unit, Runs: 1, Min: value, Max: value}
}

func (r *rigging) reportValue(name string, value float64, unit string) error {
	return r.report(single(name, value, unit))
}

// exponent describes the growth of a figure from the first size to the last: 1 means that ten times the size
// takes ten times as long.
func exponent(sizes []int, values []float64) float64 {
	last := len(sizes) - 1
	return math.Log(values[last]/values[0]) / math.Log(float64(sizes[last])/float64(sizes[0]))
}

// samples are times of the same work.
type samples []time.Duration

// at returns the p-th percentile, 0 < p ≤ 100, by the nearest rank.
func (s samples) at(p float64) time.Duration {
	sorted := slices.Sorted(slices.Values(s))
	rank := int(p/100*float64(len(sorted))+0.5) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

// percentile makes a result in milliseconds.
func (s samples) percentile(name string, p float64, floor time.Duration) result {
	return result{
		Name: name, Value: ms(s.at(p)), Unit: "ms", Runs: len(s),
		Min: ms(slices.Min(s)), Max: ms(slices.Max(s)), Floor: ms(floor),
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// machine describes where this runs and how busy it was before.
func machine() string {
	load := "unknown"
	if raw, err := os.ReadFile("/proc/loadavg"); err == nil {
		load, _, _ = strings.Cut(string(raw), " ")
	}
	return fmt.Sprintf("%s/%s, %d cores, load %s at the start", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), load)
}
