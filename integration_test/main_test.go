// Package integration_test runs keytill as a whole, by scripts: see testdata/scenarios/README.md for their language.
//
//	go test ./integration_test -run TestScenarios [-scenarios DIR]
//
// and by races, random histories against an oracle, and malformed input, in a short form unless told to run -long:
//
//	go test -race ./integration_test -long -timeout 3h
//	go test ./integration_test -run TestRandomHistories [-histories N] [-seed S [-history I]]
package integration_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/keytill/keytill/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// scenarios has to be a variable of the package: flags of a test are read before any of its code runs.
var scenarios = flag.String("scenarios", "",
	"folder of scripts to run instead of the project's own; a relative one begins where `go test` was started")

const ownScenarios = "testdata/scenarios"

func TestScenarios(t *testing.T) {
	t.Parallel()
	dir := ownScenarios
	if *scenarios != "" {
		var err error
		if dir, err = resolveDir(*scenarios); err != nil {
			t.Fatal(err)
		}
	}
	scripts, err := findScripts(dir)
	if err != nil {
		t.Fatal(err)
	}
	files, err := quoteScripts(scripts, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	deadline, _ := t.Deadline()
	testscript.RunT(scriptT{t, filepath.Dir(files[0]), dir}, testscript.Params{Files: files, Setup: setUp, Cmds: bind(commands()),
		Deadline: deadline})
}

// A scriptT is the test as testscript knows it. It names the scripts where they are, and not their quoted copies.
type scriptT struct {
	*testing.T
	copies, dir string
}

// Run runs a script.
func (t scriptT) Run(name string, f func(testscript.T)) {
	t.T.Run(name, func(inner *testing.T) { f(scriptT{inner, t.copies, t.dir}) })
}

// Verbose is the flag of this name.
func (scriptT) Verbose() bool { return testing.Verbose() }

// Log logs what became of a script.
func (t scriptT) Log(args ...any) {
	t.Helper()
	t.T.Log(strings.ReplaceAll(fmt.Sprint(args...), t.copies, t.dir))
}

// findScripts lists a folder's scripts. That there is none is an error: a run of nothing must not pass.
func findScripts(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("scenarios: %w", err)
	}
	var scripts []string
	for _, e := range entries {
		if !e.IsDir() && strings.HasSuffix(e.Name(), ".txtar") {
			scripts = append(scripts, filepath.Join(dir, e.Name()))
		}
	}
	if len(scripts) == 0 {
		return nil, fmt.Errorf("scenarios: %s holds no .txtar file", dir)
	}
	return scripts, nil
}

// resolveDir finds the folder that a flag means. `go test` runs a test in its package's directory and sets PWD to it, so
// where the command was started is asked of the parent process where the system tells, and else taken to be the
// module's root.
func resolveDir(dir string) (string, error) {
	if filepath.IsAbs(dir) {
		return dir, nil
	}
	var from []string
	if started, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", os.Getppid())); err == nil {
		from = append(from, started)
	}
	if here, err := os.Getwd(); err == nil {
		from = append(from, os.Getenv("PWD"), moduleRoot(here), here)
	}
	for _, base := range from {
		candidate := filepath.Join(base, dir)
		if info, err := os.Stat(candidate); base != "" && err == nil && info.IsDir() {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("scenarios: no folder %s in any of %q", dir, from)
}

// moduleRoot is the folder above with the go.mod, or none.
func moduleRoot(dir string) string {
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

// quoteScripts copies scripts into a folder, ready for testscript.
func quoteScripts(scripts []string, into string) ([]string, error) {
	files := make([]string, len(scripts))
	var problems []error
	for i, script := range scripts {
		files[i] = filepath.Join(into, filepath.Base(script))
		text, err := os.ReadFile(script)
		if err == nil {
			err = os.WriteFile(files[i], []byte(quoteHashes(string(text))), 0o600)
		}
		problems = append(problems, err)
	}
	return files, errors.Join(problems...)
}

// quoteHashes quotes each # that stands inside a word of a command, as in price_game*1#li_a: testscript takes one
// anywhere for the start of a comment, these scripts only at the start of a word. Lines keep their numbers.
func quoteHashes(script string) string {
	var b strings.Builder
	lines := strings.SplitAfter(script, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "-- ") && strings.HasSuffix(strings.TrimRight(line, "\r\n"), " --") {
			b.WriteString(strings.Join(lines[i:], "")) // the files: not commands any more
			break
		}
		b.WriteString(quoteLine(line))
	}
	return b.String()
}

func quoteLine(line string) string {
	var b strings.Builder
	quoted, start := false, true // start: of a word
	for i, c := range line {
		switch {
		case c == '\'':
			quoted = !quoted
		case c == '#' && !quoted && start:
			b.WriteString(line[i:]) // a comment
			return b.String()
		case c == '#' && !quoted:
			b.WriteString("'#'")
			continue
		}
		start = !quoted && (c == ' ' || c == '\t')
		b.WriteRune(c)
	}
	return b.String()
}

func TestQuoteHashesInWordsOnly(t *testing.T) {
	t.Parallel()
	const script = `# A comment, and it's one.
stripe session cs_1 price_a*2@10#li_a price_b*1#li_b # a comment#too
keytill x 'a # b'
-- file#1 --
a#b
`
	const want = `# A comment, and it's one.
stripe session cs_1 price_a*2@10'#'li_a price_b*1'#'li_b # a comment#too
keytill x 'a # b'
-- file#1 --
a#b
`
	if got := quoteHashes(script); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
