package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// bashCompletion is where the package bash-completion has its functions.
const bashCompletion = "/usr/share/bash-completion/bash_completion"

// completers ask a shell what it would offer after some words, one offer a line. The words are in $line.
var completers = map[string]string{
	"bash": `
source ` + bashCompletion + `
source <(keytill completion bash)
COMP_LINE=$line COMP_POINT=${#line} COMP_TYPE=9 COMP_KEY=9
read -ra COMP_WORDS <<<"$line"
if [[ $line == *' ' ]]; then COMP_WORDS+=(''); fi
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
__start_keytill
printf '%s\n' "${COMPREPLY[@]}"`,
	// zsh offers what _describe is given.
	"zsh": `
autoload -U compinit && compinit -D
source <(keytill completion zsh)
[[ $_comps[keytill] == _keytill ]] || exit 1
_describe() { print -rl -- $completions }
words=(${(s: :)line}); [[ $line == *' ' ]] && words+=('')
CURRENT=$#words
_keytill`,
	"fish": `
keytill completion fish | source
complete --do-complete "$line"`,
}

func TestShellsComplete(t *testing.T) {
	t.Parallel()
	need(t, "bash", "zsh", "fish")
	if _, err := os.Stat(bashCompletion); err != nil {
		t.Fatalf("bash completes with the help of a package: apt-get install bash-completion (%v)", err)
	}
	env := append(os.Environ(), "PATH="+filepath.Dir(program(t))+string(os.PathListSeparator)+os.Getenv("PATH"), "HOME="+t.TempDir())
	for shell, script := range completers {
		flags := map[string][]string{"bash": {"--noprofile", "--norc"}, "zsh": {"-f"}, "fish": {"--no-config"}}[shell]
		for line, want := range map[string]string{
			"keytill rec":                          "recipe",
			"keytill pool cr":                      "create",
			"keytill batch recall --la":            "--last",
			"keytill pool create game --shortage ": "fail",
			"keytill recipe ":                      "pgbouncer",
		} {
			cmd := exec.CommandContext(t.Context(), shell, append(flags, "-c", script)...)
			cmd.Env = append(env, "line="+line)
			out, err := cmd.CombinedOutput()
			offered := strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' || r == '\t' || r == ' ' || r == ':' })
			if err != nil || !slices.Contains(offered, want) {
				t.Errorf("%s offers after %q: %v\n%s", shell, line, err, out)
			}
		}
	}
}
