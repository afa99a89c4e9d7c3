package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/keytill/keytill/reconcile"
)

// sweepBar shows how far a sweep is: a bar that moves on a terminal, and elsewhere a line now and then.
type sweepBar struct {
	w        io.Writer
	terminal bool
	last     time.Time
	drawn    bool
}

func newSweepBar(w io.Writer, terminal bool) *sweepBar {
	return &sweepBar{w: w, terminal: terminal, last: time.Now()}
}

const (
	barWidth      = 30
	barEvery      = 100 * time.Millisecond
	barLinesEvery = 10 * time.Second
)

// tell draws, unless it has just done so.
func (b *sweepBar) tell(p reconcile.Progress) {
	every := barLinesEvery
	if b.terminal {
		every = barEvery
	}
	if time.Since(b.last) < every {
		return
	}
	b.last = time.Now()
	what := strings.ReplaceAll(string(p.Kind), "_", " ")
	if what == "" {
		what = "settled"
	}
	part := min(max(p.Part, 0), 1)
	if !b.terminal {
		fmt.Fprintf(b.w, "%s: %d, %.0f %%\n", what, p.Count, 100*part)
		return
	}
	full := int(part * barWidth)
	fmt.Fprintf(b.w, "\r\x1b[K%-20s [%s%s] %3.0f %%  %d", what, strings.Repeat("#", full), strings.Repeat(".", barWidth-full), 100*part, p.Count)
	b.drawn = true
}

// end takes the bar away.
func (b *sweepBar) end() {
	if b.drawn {
		fmt.Fprint(b.w, "\r\x1b[K")
	}
}
