package main_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/keytill/keytill/adapter/recipes"
)

// A step is one block of commands of a recipe, with what the recipe says that they print.
type step struct {
	heading string // it stands under
	line    int    // of the recipe
	script  string
	prints  []string // nil: nothing is said about it
}

// steps parses a recipe: ```sh blocks, and a ```text block that follows one.
func steps(t *testing.T, text string) []step {
	t.Helper()
	var (
		all      []step
		heading  string
		language string // of the block that is open
		opened   int
		block    []string
		fresh    bool // nothing but blank lines since the last block of commands
	)
	for i, line := range strings.Split(text, "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && language == "":
			language, opened, block = fence, i+1, []string{}
		case isFence && language == "sh":
			all, language, fresh = append(all, step{heading: heading, line: opened, script: strings.Join(block, "\n") + "\n"}), "", true
		case isFence && language == "text" && fresh:
			all[len(all)-1].prints, language, fresh = block, "", false
		case isFence:
			t.Fatalf("line %d: a block of %q: it is sh, or text right after sh", opened, language)
		case language != "":
			block = append(block, line)
		case strings.HasPrefix(line, "## "):
			heading, fresh = strings.TrimPrefix(line, "## "), false
		case strings.TrimSpace(line) != "":
			fresh = false
		}
	}
	if language != "" {
		t.Fatalf("line %d: a block of %s does not end", opened, language)
	}
	return all
}

// A kitchen is where a recipe's commands are run: one shell for all of them, in a directory of its own.
type kitchen struct {
	t   *testing.T
	dir string
	env []string

	// instead is what stands in the recipe, and what the test runs in its place: what a recipe cannot know, as an address
	// that is free on this machine. Placeholders (with an …) that nothing stands in for are left to env.
	instead []string

	address  string // of the daemon, in place of the usual one
	database string // its URL; there is no schema of keytill's in it

	// at is what happens in the world before the commands under a heading: a buyer pays, Stripe posts.
	at map[string]func()

	checks []check

	terminal *terminal
}

// A check is what must be so once a block has been run.
type check struct {
	block string // what stands in it
	is    func()
}

// after checks something after the block that holds a text.
func (k *kitchen) after(block string, is func()) { k.checks = append(k.checks, check{block, is}) }

func (k *kitchen) cook(name string) {
	k.t.Helper()
	recipe, err := recipes.Find(name)
	if err != nil {
		k.t.Fatal(err)
	}
	pairs := []string{"127.0.0.1:8080", k.address}
	for i := 0; i < len(k.instead); i += 2 {
		if !strings.Contains(recipe.Text, k.instead[i]) {
			k.t.Errorf("the recipe does not say %q any more", k.instead[i])
		}
		pairs = append(pairs, k.instead[i], k.instead[i+1])
	}
	replace := strings.NewReplacer(pairs...)
	if k.terminal == nil {
		k.open()
	}
	heading := ""
	for _, s := range steps(k.t, recipe.Text) {
		if s.heading != heading {
			heading = s.heading
			k.happen(heading)
		}
		script := withoutPlaceholders(replace.Replace(s.script))
		if rest := regexp.MustCompile(`(?m)(^|\s)#.*$`).ReplaceAllString(script, ""); strings.Contains(rest, "…") {
			k.t.Fatalf("%s, line %d: nothing stands in for a placeholder:\n%s", name, s.line, script)
		}
		printed, failures := k.terminal.run(script)
		var want []string
		for _, line := range s.prints {
			want = append(want, replace.Replace(line))
		}
		// A command fails where the recipe shows what it says then, and nowhere else.
		shown := slices.ContainsFunc(want, func(line string) bool { return strings.HasPrefix(line, "keytill: ") })
		if failures != "" && !shown {
			k.t.Fatalf("%s, line %d: %s failed:\n%s\nIt printed:\n%s", name, s.line, failures, script, printed)
		}
		if s.prints != nil {
			if problem := differs(want, lines(printed)); problem != "" {
				k.t.Errorf("%s, line %d: %s.\n%s\nIt printed:\n%s", name, s.line, problem, script, printed)
			}
		}
		k.checks = slices.DeleteFunc(k.checks, func(c check) bool {
			if strings.Contains(s.script, c.block) {
				c.is()
				return true
			}
			return false
		})
	}
	for _, c := range k.checks {
		k.t.Errorf("the recipe has no block with %q", c.block)
	}
	for left := range k.at {
		k.t.Errorf("the recipe has no commands under %q", left)
	}
}

// open opens the terminal.
func (k *kitchen) open() { k.terminal = openTerminal(k.t, k.dir, k.env) }

// must runs a command that is none of the recipe's.
func (k *kitchen) must(script string) {
	k.t.Helper()
	if k.terminal == nil {
		k.open()
	}
	if printed, failures := k.terminal.run(script + "\n"); failures != "" {
		k.t.Fatalf("%s:\n%s", failures, printed)
	}
}

func (k *kitchen) happen(heading string) {
	if f := k.at[heading]; f != nil {
		delete(k.at, heading)
		f()
	}
}

// lines are what was printed, without blank lines at the end.
func lines(text string) []string { return strings.Split(strings.TrimRight(text, "\n "), "\n") }

// differs compares what a recipe says with what was printed, and says the first line that is not there. Widths of columns
// and times are nobody's promise.
func differs(want, got []string) string {
	switch {
	case len(want) == 0 && len(got) == 0:
		return ""
	case len(want) == 0:
		return fmt.Sprintf("it does not say %q", got[0])
	case want[0] == "…":
		for i := range len(got) + 1 {
			if differs(want[1:], got[i:]) == "" {
				return ""
			}
		}
		return fmt.Sprintf("what follows %q is not there", "…")
	case len(got) == 0:
		return fmt.Sprintf("%q is not there", want[0])
	case !pattern(want[0]).MatchString(times.ReplaceAllString(squeeze(got[0]), "TIME")):
		return fmt.Sprintf("it says %q, and %q was printed", want[0], got[0])
	}
	return differs(want[1:], got[1:])
}

var times = regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?`)

func squeeze(line string) string { return strings.Join(strings.Fields(line), " ") }

func pattern(line string) *regexp.Regexp {
	quoted := regexp.QuoteMeta(times.ReplaceAllString(squeeze(line), "TIME"))
	return regexp.MustCompile("^" + strings.ReplaceAll(quoted, "…", ".*") + "$")
}

const recipeColumns = 80

func TestRecipesFitATerminal(t *testing.T) {
	t.Parallel()
	all, err := recipes.All()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(top, "adapter", "recipes", "*.md"))
	if err != nil || len(files) != len(all) {
		t.Errorf("%d files, %d are listed (%v)", len(files), len(all), err)
	}
	for _, r := range all {
		if !strings.HasPrefix(r.Text, "# ") || !strings.HasSuffix(r.Text, "\n") {
			t.Errorf("%s does not begin with its title, or does not end with a line", r.Name)
		}
		if len(steps(t, r.Text)) == 0 {
			t.Errorf("%s has no commands", r.Name)
		}
		for i, line := range strings.Split(r.Text, "\n") {
			// Tabs are only there to indent a program.
			text := strings.TrimLeft(line, "\t")
			if n := 8*(len(line)-len(text)) + utf8.RuneCountInString(text); n > recipeColumns {
				t.Errorf("%s, line %d is %d columns wide", r.Name, i+1, n)
			}
			if strings.Contains(text, "\t") || strings.TrimRight(line, " \t") != line {
				t.Errorf("%s, line %d has a tab within, or spaces at its end", r.Name, i+1)
			}
		}
	}
}

func TestRecipesAreComparedLineByLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want, got string
		same      bool
	}{
		{"SKU  AVAILABLE\ngame 2", "SKU     AVAILABLE\ngame    2", true},
		{"game 2", "game 3", false},
		{"game 2", "game 2\nmore", false},
		{"game 2\nmore", "game 2", false},
		{"since 2026-01-02 03:04 UTC", "since 2031-12-11 10:09 UTC", true},
		{"since 2026-01-02 03:04 UTC", "since yesterday UTC", false},
		{"key …", "key 17", true},
		{"key … sold", "key 17", false},
		{"a\n…\nz", "a\nb\nc\nz", true},
		{"a\n…\nz", "a\nb\nc", false},
		{"…", "", true},
		{"a.c", "abc", false},
	} {
		if problem := differs(lines(c.want), lines(c.got)); (problem == "") != c.same {
			t.Errorf("%q and %q: %q", c.want, c.got, problem)
		}
	}
}
