package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/keytill/keytill/inventory"
)

// importBar shows how far an import is: a line that moves on a terminal, and elsewhere one now and then.
type importBar struct {
	w        io.Writer
	terminal bool
	size     int64 // of the file in bytes; 0 unless known
	started  time.Time
	last     time.Time
	stage    inventory.Stage
	drawn    bool
}

func newImportBar(w io.Writer, terminal bool, size int64) *importBar {
	now := time.Now()
	return &importBar{w: w, terminal: terminal, size: size, started: now, last: now}
}

// tell draws, unless it has just done so. The later stages have no measure; each is told of once.
func (b *importBar) tell(p inventory.Progress) {
	every := barLinesEvery
	if b.terminal {
		every = barEvery
	}
	since := time.Since(b.last)
	if since < every && (p.Stage == b.stage || !b.drawn) {
		return
	}
	b.last, b.stage, b.drawn = time.Now(), p.Stage, true
	line := b.line(p, time.Since(b.started))
	if b.terminal {
		fmt.Fprintf(b.w, "\r\x1b[K%s", line)
		return
	}
	fmt.Fprintln(b.w, line)
}

func (b *importBar) line(p inventory.Progress, elapsed time.Duration) string {
	done := fmt.Sprintf("%d rows, %.1f MB", p.Rows, float64(p.Bytes)/1e6)
	if p.Stage != inventory.StageReading {
		return fmt.Sprintf("%s, %s …", done, p.Stage)
	}
	line := fmt.Sprintf("%s, %.0f rows/s", done, float64(p.Rows)/max(elapsed.Seconds(), 0.001))
	if b.size == 0 || p.Bytes == 0 {
		return line
	}
	part := min(float64(p.Bytes)/float64(b.size), 1)
	left := time.Duration(float64(elapsed) * (1 - part) / part).Round(time.Second)
	full := int(part * barWidth)
	return fmt.Sprintf("[%s%s] %3.0f %%  %s, %s left", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), 100*part, line, left)
}

// end takes the bar away.
func (b *importBar) end() {
	if b.drawn && b.terminal {
		fmt.Fprint(b.w, "\r\x1b[K")
	}
}

// rotationBar shows how far a rotation is.
type rotationBar struct{ importBar }

func newRotationBar(w io.Writer, terminal bool) *rotationBar {
	return &rotationBar{*newImportBar(w, terminal, 0)}
}

func (b *rotationBar) tell(p inventory.RotationProgress) {
	every := barLinesEvery
	if b.terminal {
		every = barEvery
	}
	if time.Since(b.last) < every {
		return
	}
	b.last, b.drawn = time.Now(), true
	part := float64(p.Done) / float64(max(p.Total, 1))
	rate := float64(p.Done) / max(time.Since(b.started).Seconds(), 0.001)
	line := fmt.Sprintf("%3.0f %%  %d of %d keys, %.0f keys/s", 100*part, p.Done, p.Total, rate)
	if b.terminal {
		full := int(part * barWidth)
		fmt.Fprintf(b.w, "\r\x1b[K[%s%s] %s", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), line)
		return
	}
	fmt.Fprintln(b.w, line)
}
