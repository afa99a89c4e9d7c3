package mutants

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keytill/keytill/internal/pgserver"
	"github.com/keytill/keytill/internal/pgtest"
)

var (
	long = flag.Bool("long", false, "try every mutant, which takes an hour and more")
	only = flag.String("only", "", "with -long: try the mutants whose names match this regular expression")
)

// sample are the mutants that CI tries: of several layers, and quick.
var sample = []string{"verify-future", "claim-skip-locked", "index-live-unit"}

// testTimeout ends a test that hangs for want of what was taken out.
const testTimeout = time.Minute

func TestASampleOfMutantsIsKilled(t *testing.T) {
	if *long {
		return // it is among all of them
	}
	lab := newLab(t)
	for _, name := range sample {
		at := slices.IndexFunc(all, func(m mutant) bool { return m.name == name })
		if at < 0 {
			t.Fatalf("there is no mutant %s", name)
		}
		lab.try(t, all[at])
	}
}

// A test that fails in any case kills every mutant, so all of them must pass on the code as it is.
func TestEveryMutantIsKilled(t *testing.T) {
	if !*long {
		return // bash .ci/mutants
	}
	chosen := regexp.MustCompile(*only)
	lab := newLab(t)
	tests := map[string][]string{}
	for _, m := range all {
		if chosen.MatchString(m.name) {
			tests[m.dir] = append(tests[m.dir], m.tests()...)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(tests)) {
		t.Run("as it is/"+dir, func(t *testing.T) {
			names := slices.Compact(slices.Sorted(slices.Values(tests[dir])))
			found, out := lab.run(t, "", dir, "^("+strings.Join(names, "|")+")$")
			if found != survived {
				t.Fatalf("the tests do not pass without any mutant: %s\n%s", found, tail(out))
			}
		})
	}
	for _, m := range all {
		if chosen.MatchString(m.name) {
			t.Run(m.name, func(t *testing.T) { lab.try(t, m) })
		}
	}
}

// A fate is what became of a mutant.
type fate string

const (
	killed     fate = "killed"
	survived   fate = "survived"
	noCompile  fate = "did not compile"
	brokenSQL  fate = "is SQL that the database does not understand, which any test sees"
	noTest     fate = "no test ran"
	otherError fate = "the tests failed in a way that no test told"
)

// lab is where mutants are tried: one database server for all of their tests, so that those that fail leave none behind.
type lab struct{ database string }

func newLab(t *testing.T) *lab {
	t.Helper()
	return &lab{database: pgtest.Server(t, pgserver.Config{Fast: true, TempDir: pgserver.MemoryDir()}).URL()}
}

func (l *lab) try(t *testing.T, m mutant) {
	t.Helper()
	text, err := m.mutated()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	found, out := l.run(t, overlay(t, m.file, text), m.dir, m.pattern())
	if found != killed {
		t.Errorf("mutant %s: %s. %s\n%s: %s\n%s", m.name, found, m.why, m.dir, m.test, tail(out))
		return
	}
	t.Logf("%s: killed in %v by %s", m.name, time.Since(began).Round(time.Second/10), killers(out))
}

// overlay is a file for the go command that puts a text in the place of a file of the module's.
func overlay(t *testing.T, file, text string) string {
	t.Helper()
	dir := t.TempDir()
	original, err := filepath.Abs(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	replacement := filepath.Join(dir, "mutant"+filepath.Ext(file))
	list, err := json.Marshal(map[string]map[string]string{"Replace": {original: replacement}})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := errors.Join(os.WriteFile(replacement, []byte(text), 0o600), os.WriteFile(overlay, list, 0o600)); err != nil {
		t.Fatal(err)
	}
	return overlay
}

// run builds a package's tests with an overlay, if there is one, and runs those that match.
func (l *lab) run(t *testing.T, overlay, dir, pattern string) (fate, []byte) {
	t.Helper()
	env := append(os.Environ(), "KEYTILL_TEST_DATABASE_URL="+l.database)
	if overlay != "" {
		// In the environment, so that a test that builds the daemon builds the mutant.
		env = append(env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	binary := filepath.Join(t.TempDir(), "tests")
	// Linking is most of the time, and nobody will debug a mutant.
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-ldflags=-s -w", "-o", binary, "./"+dir)
	build.Dir, build.Env = root, env
	if out, err := build.CombinedOutput(); err != nil {
		return noCompile, out
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout+time.Minute)
	defer cancel()
	tests := exec.CommandContext(ctx, binary, "-test.run="+pattern, "-test.v", fmt.Sprintf("-test.timeout=%v", testTimeout))
	tests.Dir, tests.Env = filepath.Join(root, dir), env
	tests.WaitDelay = 10 * time.Second
	out, err := tests.CombinedOutput()
	return fateOf(out, err), out
}

func fateOf(out []byte, err error) fate {
	var exit *exec.ExitError
	switch {
	case err == nil && !bytes.Contains(out, []byte("--- PASS")):
		return noTest
	case err == nil:
		return survived
	case !errors.As(err, &exit):
		return otherError
	case notUnderstood.Match(out):
		return brokenSQL
	case failedTest.Match(out):
		return killed
	default:
		return otherError
	}
}

var (
	failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^(panic: .*)|^goleak: Errors`)

	// Syntax error, undefined column or function, type mismatch: a mutant must be good SQL.
	notUnderstood = regexp.MustCompile(`SQLSTATE (42601|42703|42883|42P02|42804|42846|42P18|42803)`)
)

// killers are the tests that failed, without those that only hold them.
func killers(out []byte) string {
	var names []string
	for _, found := range failedTest.FindAllSubmatch(out, -1) {
		name := string(found[1]) + string(found[2])
		if len(names) > 0 && strings.HasPrefix(name, names[len(names)-1]+"/") {
			names = names[:len(names)-1]
		}
		if name != "" && len(names) < 5 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

func tail(out []byte) string {
	const most = 4000
	return string(out[max(0, len(out)-most):])
}
