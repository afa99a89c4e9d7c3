package integration_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// A command is one word of the scripts' language. Its error fails the script.
type command func(ctx context.Context, c *call) error

// A call is one use of a command.
type call struct {
	*scenario
	words []string // its arguments
	neg   bool     // "!" stood before it
	dir   string   // where the script's files are

	printed        bool // stdout and stderr are a command line's, for the script to match
	stdout, stderr bytes.Buffer
}

// commands are all of them by name, without testscript's own.
func commands() map[string]command {
	cmds := map[string]command{
		"merchant": merchant, "pool": pool, "restock": restock, "thankyou": thankYou, "smtp": smtp,
		"reserve": reserve, "release": release,
		"stripe": stripe, "snapshot": snapshot, "event": event, "post": post,
		"settle": settle, "clock": clockForward, "restart": restart,
		"order": order, "no": noOrder, "keys": keys, "remember": remember, "same": same,
		"stock": stock, "mail": mail, "hook": hook, "finding": finding, "invariants": invariants,
	}
	for name, cmd := range cmds {
		cmds[name] = unnegated(cmd)
	}
	cmds["keytill"], cmds["reconcile"] = keytill, reconcile
	cmds["for-each"] = unnegated(func(ctx context.Context, c *call) error { return forEach(ctx, c, cmds) })
	return cmds
}

// unnegated refuses "!" before a command that has no meaning with it.
func unnegated(cmd command) command {
	return func(ctx context.Context, c *call) error {
		if c.neg {
			return fmt.Errorf("this command cannot stand behind a !")
		}
		return cmd(ctx, c)
	}
}

// bind makes testscript's commands of ours.
func bind(cmds map[string]command) map[string]func(ts *testscript.TestScript, neg bool, args []string) {
	bound := make(map[string]func(ts *testscript.TestScript, neg bool, args []string), len(cmds))
	for name, cmd := range cmds {
		bound[name] = func(ts *testscript.TestScript, neg bool, words []string) {
			s := ts.Value(scenarioKey{}).(*scenario)
			c := &call{scenario: s, words: words, neg: neg, dir: ts.MkAbs(".")}
			err := cmd(s.ctx, c)
			if c.printed {
				_, _ = ts.Stdout().Write(c.stdout.Bytes())
				_, _ = ts.Stderr().Write(c.stderr.Bytes())
			}
			ts.Check(err)
		}
	}
	return bound
}

// file reads a file of the script.
func (c *call) file(name string) ([]byte, error) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(c.dir, name)
	}
	return os.ReadFile(name)
}

// args are a call's arguments, sorted.
type args struct {
	plain []string          // those without a name
	named map[string]string // name=value
}

// args sorts the arguments: there must be these without a name, and of the named none but those allowed.
func (c *call) args(plain string, allowed ...string) (args, error) {
	a, err := sortWords(c.words)
	if err != nil {
		return a, err
	}
	if want := strings.Fields(plain); len(a.plain) != len(want) {
		return a, fmt.Errorf("it takes %d arguments without a name (%s), not %q", len(want), plain, a.plain)
	}
	for _, name := range slices.Sorted(maps.Keys(a.named)) {
		if !slices.Contains(allowed, name) {
			return a, fmt.Errorf("unknown argument %s=, known are %q", name, allowed)
		}
	}
	return a, nil
}

func sortWords(words []string) (args, error) {
	a := args{named: make(map[string]string)}
	for _, word := range words {
		name, value, named := strings.Cut(word, "=")
		if !named {
			a.plain = append(a.plain, word)
			continue
		}
		if _, twice := a.named[name]; twice {
			return a, fmt.Errorf("%s= stands there twice", name)
		}
		a.named[name] = value
	}
	return a, nil
}

// exactly checks the number of arguments of a command whose arguments have no names.
func (c *call) exactly(usage string) error {
	if want := len(strings.Fields(usage)); len(c.words) != want {
		return fmt.Errorf("it takes %d arguments (%s), not %q", want, usage, c.words)
	}
	return nil
}

func (a args) text(name, unless string) string {
	if v, ok := a.named[name]; ok {
		return v
	}
	return unless
}

// count reads a number of at least this much.
func (a args) count(name string, unless, atLeast int) (int, error) {
	v, ok := a.named[name]
	if !ok {
		return unless, nil
	}
	return readCount(name, v, atLeast)
}

func readCount(what, text string, atLeast int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < atLeast {
		return 0, fmt.Errorf("%s: %q is no number of at least %d", what, text, atLeast)
	}
	return n, nil
}

// ahead reads a time from now on, as in +72h.
func ahead(text string) (time.Duration, error) {
	rest, ok := strings.CutPrefix(text, "+")
	d, err := time.ParseDuration(rest)
	if !ok || err != nil || d < 0 {
		return 0, fmt.Errorf("%q is no time ahead: write +20m or +72h", text)
	}
	return d, nil
}

// counts reads STATE:N …, each state one of the known.
func readCounts[S ~string](words []string, known []S) (map[S]int, error) {
	counts := make(map[S]int, len(words))
	for _, word := range words {
		state, number, _ := strings.Cut(word, ":")
		if !slices.Contains(known, S(state)) {
			return nil, fmt.Errorf("%q: unknown state, known are %q", word, known)
		}
		if _, twice := counts[S(state)]; twice {
			return nil, fmt.Errorf("%s: stands there twice", state)
		}
		n, err := readCount(state, number, 0)
		if err != nil {
			return nil, err
		}
		counts[S(state)] = n
	}
	return counts, nil
}

// showCounts writes counts as scripts do, in this order of states, without the zeros.
func showCounts[S ~string, N int | int64](counts map[S]N, order []S) string {
	var parts []string
	for _, state := range order {
		if counts[state] != 0 {
			parts = append(parts, fmt.Sprintf("%s:%d", state, counts[state]))
		}
	}
	if parts == nil {
		return "none"
	}
	return strings.Join(parts, " ")
}
