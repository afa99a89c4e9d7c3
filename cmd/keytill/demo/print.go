package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// Printer writes the demo for a person, in 80 columns.
type Printer struct {
	W     io.Writer
	Live  bool // a terminal: the line of the running step is written over
	Color bool

	shown bool      // the running step's line is on the screen
	said  time.Time // when a step that takes long was last heard of, where lines cannot be written over
}

// sayEvery is how often a long step is heard of where lines cannot be written over.
const sayEvery = 5 * time.Second

const (
	width    = 80
	barWidth = 32
)

// Head says what is about to happen.
func (p *Printer) Head(c Config) {
	fmt.Fprintf(p.W, "\n  %s  %s\n\n", p.bold("keytill demo"), p.dim(fmt.Sprintf("%s, %s at once, and a webhook's bad day",
		plural(c.Keys, "key"), plural(c.Orders, "order"))))
}

// Progress shows how far a step is, and leaves a line when it is over.
func (p *Printer) Progress(now Progress) {
	switch {
	case now.Over && now.Note != "":
		p.clear()
		took := fmt.Sprintf("%.1f s", now.Took.Seconds())
		fmt.Fprintf(p.W, "  %s %s%s\n", p.green("✓"), pad(now.Note, width-6-len(took)), p.dim(took))
	case now.Over:
		p.clear()
	case p.Live:
		p.clear()
		line := "  · " + now.Step
		if now.Total > 0 {
			filled := float64(now.Done) / float64(now.Total)
			line = pad(line, 24) + p.bar(filled, barWidth) + p.dim(strings.Repeat("─", barWidth-cells(filled, barWidth))) +
				fmt.Sprintf(" %d of %d", now.Done, now.Total)
		}
		fmt.Fprint(p.W, line)
		p.shown = true
	case now.Total > 0 && time.Since(p.said) > sayEvery:
		if !p.said.IsZero() {
			fmt.Fprintf(p.W, "  · %s: %d of %d\n", now.Step, now.Done, now.Total)
		}
		p.said = time.Now()
	}
}

// Stop takes the running step's line off the screen.
func (p *Printer) Stop() { p.clear() }

func (p *Printer) clear() {
	if p.shown {
		fmt.Fprint(p.W, "\r\x1b[K")
		p.shown = false
	}
}

// Report prints what became of it all.
func (p *Printer) Report(r Report) {
	p.counts(r)
	p.sample(r.Sample)
	p.speed(r)
	p.checks(r)
	p.open(r.Open)
}

// open says where the shop stays open.
func (p *Printer) open(o *Open) {
	if o == nil {
		return
	}
	p.section("Open until Ctrl-C", "three days later, as the story went")
	for _, row := range [][2]string{
		{"console", o.Console}, {"token", o.Token}, {"shop", o.Shop + "  to buy, refund, and read the mails"},
		{"API", o.API + "  with the same token"}, {"metrics", o.Metrics}, {"Stripe", o.Stripe + "  a fake; its key is " + o.StripeKey},
	} {
		address, note, _ := strings.Cut(row[1], "  ")
		fmt.Fprintln(p.W, strings.TrimRight(fmt.Sprintf("  %-9s %s  %s", row[0], p.bold(address), p.dim(note)), " "))
	}
	fmt.Fprintln(p.W)
}

func (p *Printer) section(title, aside string) {
	fmt.Fprintf(p.W, "\n  %s %s %s\n", p.bold(title), p.dim(strings.Repeat("─", width-6-runes(title)-runes(aside))), p.dim(aside))
}

func (p *Printer) counts(r Report) {
	p.section("What the database says", "read back, not remembered")
	rows := []struct {
		name   string
		counts []Count
	}{{"keys", r.Keys}, {"orders", r.Orders}, {"units", r.Units}}
	for _, row := range rows {
		total := int64(0)
		for _, c := range row.counts {
			total += c.N
		}
		for i, c := range row.counts {
			name := ""
			if i == 0 {
				name = row.name
			}
			line := fmt.Sprintf("  %-9s %-14s %6d  %s", name, strings.ReplaceAll(c.State, "_", " "), c.N,
				p.bar(float64(c.N)/float64(max(total, 1)), 40))
			fmt.Fprintln(p.W, strings.TrimRight(line, " "))
		}
	}
	fmt.Fprintln(p.W)
	p.line("webhooks", "posted", r.Events.Posted, fmt.Sprintf("brought %s, %d of them settled", plural(r.Events.Recorded, "event"), r.Events.Done))
	for i, d := range r.Deliveries {
		name := d.Channel
		if i > 0 && r.Deliveries[i-1].Channel == d.Channel {
			name = ""
		}
		if name == "email" {
			name = "mails"
		} else if name == "hook" {
			name = "hooks"
		}
		p.line(name, "arrived", d.Arrived, fmt.Sprintf("of %d sent: %s", d.Sent, d.Type))
	}
	p.line("Stripe", "calls", r.Stripe.Total, fmt.Sprintf("%.1f for each order", float64(r.Stripe.Total)/float64(max(total(r.Orders), 1))))
	if r.Waiting > 0 {
		fmt.Fprintf(p.W, "\n  %s\n", p.yellow(fmt.Sprintf("%s: fewer keys than orders, as asked for. The next restock", waits(r.Waiting))))
		fmt.Fprintf(p.W, "  %s\n", p.yellow("serves them first, oldest payment first."))
	}
}

func waits(n int) string {
	if n == 1 {
		return "1 unit still waits"
	}
	return fmt.Sprintf("%d units still wait", n)
}

func (p *Printer) line(name, what string, n int, note string) {
	fmt.Fprintf(p.W, "  %-9s %-14s %6d  %s\n", name, what, n, p.dim(note))
}

func total(counts []Count) (n int64) {
	for _, c := range counts {
		n += c.N
	}
	return n
}

func (p *Printer) sample(s Sample) {
	p.section("One of the orders", s.Order.ID)
	fmt.Fprintf(p.W, "  %s · %d %s · %s\n", s.Order.Email, s.Order.Total, s.Order.Currency, s.Order.Payment)
	fmt.Fprintf(p.W, "  key %s\n\n", dash(s.Key))
	for _, m := range s.History {
		name := m.Name
		if m.What == "key" {
			name = p.bold(name)
		}
		fmt.Fprintf(p.W, "  %s  %-8s %s\n", p.dim(fmt.Sprintf("%7d ms", m.MS)), m.What, name)
	}
}

func dash(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

func (p *Printer) speed(r Report) {
	p.section("How fast", "on this machine")
	fmt.Fprintf(p.W, "  %s in %.2f s, webhook to key: %.0f a second, with %d calls to Stripe.\n", plural(r.Rush.Orders, "order"),
		float64(r.Rush.MS)/1000, r.Rush.PerSecond, r.Stripe.Rush)
	fmt.Fprintf(p.W, "  %s\n", p.dim("This fake Stripe has no rate limit; the real one allows 100 calls a second."))
	fmt.Fprintf(p.W, "  %s\n", p.dim("Its database is thrown away, so it has no fsync; yours waits for its disk."))
}

func (p *Printer) checks(r Report) {
	p.section("Is it right?", fmt.Sprintf("all of it in %.1f s", float64(r.TookMS)/1000))
	for _, c := range r.Checks {
		if len(c.Problems) == 0 {
			fmt.Fprintf(p.W, "  %s %s\n", p.green("✓"), c.Promise)
			continue
		}
		fmt.Fprintf(p.W, "  %s %s\n", p.red("✗"), c.Promise)
		for _, problem := range c.Problems {
			fmt.Fprintf(p.W, "      %s\n", p.red(problem))
		}
	}
	switch {
	case r.OK && r.Open != nil:
		fmt.Fprintf(p.W, "\n  %s\n", p.bold("Every promise held."))
	case r.OK:
		fmt.Fprintf(p.W, "\n  %s\n\n", p.bold("Every promise held. Nothing is left running."))
	default:
		fmt.Fprintf(p.W, "\n  %s\n\n", p.red("A promise was broken. That is a bug in keytill."))
	}
}

// bar is a line of so many cells, filled to a part; what is not nothing shows.
func (p *Printer) bar(part float64, of int) string {
	return p.cyan(strings.Repeat("━", cells(part, of)))
}

func cells(part float64, of int) int {
	n := int(part*float64(of) + 0.5)
	if part > 0 {
		n = max(n, 1)
	}
	return min(n, of)
}

func pad(text string, cells int) string { return text + strings.Repeat(" ", max(1, cells-runes(text))) }

func runes(text string) int { return utf8.RuneCountInString(text) }

func (p *Printer) paint(code, text string) string {
	if !p.Color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p *Printer) bold(text string) string   { return p.paint("1", text) }
func (p *Printer) dim(text string) string    { return p.paint("2", text) }
func (p *Printer) red(text string) string    { return p.paint("31", text) }
func (p *Printer) green(text string) string  { return p.paint("32", text) }
func (p *Printer) yellow(text string) string { return p.paint("33", text) }
func (p *Printer) cyan(text string) string   { return p.paint("36", text) }
