package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/keytill/keytill/inventory"
)

func TestAnImportSaysHowFarItIs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		size int64
		p    inventory.Progress
		want []string
	}{
		{4e6, inventory.Progress{Stage: inventory.StageReading, Rows: 20_000, Bytes: 1e6}, []string{" 25 %", "20000 rows, 1.0 MB, 2000 rows/s", "30s left", "[#######."}},
		{0, inventory.Progress{Stage: inventory.StageReading, Rows: 20_000, Bytes: 1e6}, []string{"20000 rows, 1.0 MB, 2000 rows/s"}},
		{1e6, inventory.Progress{Stage: inventory.StageStoring, Rows: 20_000, Bytes: 1e6}, []string{"20000 rows, 1.0 MB, storing …"}},
	} {
		got := newImportBar(nil, true, tc.size).line(tc.p, 10*time.Second)
		for _, want := range tc.want {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in %q", want, got)
			}
		}
	}
}

func TestAShortImportSaysNothing(t *testing.T) {
	t.Parallel()
	for _, terminal := range []bool{true, false} {
		var out strings.Builder
		bar := newImportBar(&out, terminal, 0)
		bar.tell(inventory.Progress{Stage: inventory.StageReading})
		bar.tell(inventory.Progress{Stage: inventory.StageChecking})
		bar.end()
		if out.Len() > 0 {
			t.Errorf("terminal %v: %q", terminal, &out)
		}
		bar.last = bar.last.Add(-time.Hour)
		bar.tell(inventory.Progress{Stage: inventory.StageStoring})
		if !strings.Contains(out.String(), "storing") {
			t.Errorf("terminal %v, after an hour: %q", terminal, &out)
		}
	}
}
