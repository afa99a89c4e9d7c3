package integration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The table of speed asks for nothing that no benchmark reports.
func TestTableOfSpeedAsksForWhatBenchmarksReport(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile("../.ci/bench.awk")
	if err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Glob("*_bench_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, name := range append(sources, "sweeps/bench_test.go") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	asked := regexp.MustCompile(`(?:typical\(|median\[)"(\w+)[^"]*", "([^"]+)"`).FindAllStringSubmatch(string(table), -1)
	if len(asked) < 20 {
		t.Fatalf("the table asks for %d figures only: %v", len(asked), asked)
	}
	for _, a := range asked {
		if !strings.Contains(code.String(), "func Benchmark"+a[1]+"(b *testing.B)") {
			t.Errorf("there is no Benchmark%s", a[1])
		}
		quoted := strings.Contains(code.String(), `"`+a[2]+`"`)
		if made, ok := strings.CutSuffix(a[2], "/s"); !quoted && !(ok && strings.Contains(code.String(), `"`+made+`"`)) {
			t.Errorf("no benchmark reports %s", a[2])
		}
	}
}

// What benchmarks print becomes the table: medians of several runs with their range, in the units that they were printed in.
func TestTableOfSpeedIsMadeOfWhatBenchmarksPrint(t *testing.T) {
	t.Parallel()
	const printed = `date: 2026-11-29
cores: 2
go: go1.26.8
postgresql: 15.18
goos: linux
goarch: amd64
pkg: github.com/keytill/keytill/integration_test
cpu: A Processor
BenchmarkHotPool-2   	       1	      4000 64pools/s	      3960 settles/s	         0.990 x/64pools
BenchmarkHotPool-2   	       1	      4000 64pools/s	      4040 settles/s	         1.010 x/64pools
BenchmarkHotPool-2   	       1	      4000 64pools/s	      4000 settles/s	         1.000 x/64pools
PASS
pkg: github.com/keytill/keytill/integration_test/sweeps
BenchmarkSweep/100000-2   	       1	      2004 calls	        29.1 peak-MB	        55.0 sweep-s
`
	file := filepath.Join(t.TempDir(), "printed")
	if err := os.WriteFile(file, []byte(printed), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "../.ci/bench", "-table", file)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, problems.String())
	}
	for _, want := range []string{
		"Measured on 2026-11-29: A Processor, 2 cores, go1.26.8, PostgreSQL 15.18. A median, with the range of the runs.\n\n| what is measured | goal | here |\n|---|---|---|\n",
		"| one pool against 64 | ≥ 0.95 | 1.00 (0.99 – 1.01) |\n",
		"| 2,004 calls, 55.0 s, 29.1 MB |\n",
		"not measured", // of the others
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the table lacks %q:\n%s", want, out)
		}
	}
}
