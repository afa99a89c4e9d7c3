package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// walk visits every command.
func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		walk(sub, visit)
	}
}

func everyCommand(t *testing.T) *cobra.Command {
	t.Helper()
	var out bytes.Buffer
	c := &command{Process: process(&out, &out)}
	root := c.root()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	return root
}

func TestEveryCommandHelps(t *testing.T) {
	t.Parallel()
	walk(everyCommand(t), func(cmd *cobra.Command) {
		path := cmd.CommandPath()
		if strings.HasPrefix(path, "keytill help") || strings.HasPrefix(path, "keytill completion") {
			return // cobra's own
		}
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: a short help of one line without a full stop, not %q", path, cmd.Short)
		}
		if !cmd.HasSubCommands() {
			if cmd.Example == "" {
				t.Errorf("%s has no example", path)
			}
			if cmd.Args == nil {
				t.Errorf("%s takes whatever is typed after it", path)
			}
		}
		for line := range strings.SplitSeq(cmd.Example, "\n") {
			if cmd.Example != "" && (!strings.HasPrefix(line, "  ") || !strings.Contains(line, "keytill")) {
				t.Errorf("%s: the example %q shows no command", path, line)
			}
		}
		for line := range strings.SplitSeq(cmd.Long, "\n") {
			if n := len([]rune(line)); n > 125 {
				t.Errorf("%s: a line of the help has %d characters: %s", path, n, line)
			}
		}
	})
}

// interfaceCommands are those that users rely on.
var interfaceCommands = []string{"demo", "serve", "migrate", "keyset new", "keyset rotate", "merchant add", "pool create", "pool map", "pool list",
	"import", "stock", "stock rebuild", "batch list", "batch quarantine", "batch release", "batch recall", "order show", "order resend",
	"order retry", "order settle", "key revoke", "key replace", "key verify", "refund attribute", "findings", "reconcile", "audit", "doctor",
	"token new", "dashboards", "completion bash"}

func TestEveryPromisedCommandIsThere(t *testing.T) {
	t.Parallel()
	root := everyCommand(t)
	for _, words := range interfaceCommands {
		cmd, rest, err := root.Find(strings.Fields(words))
		if err != nil || len(rest) > 0 || cmd.CommandPath() != "keytill "+words {
			t.Errorf("there is no `keytill %s`", words)
		}
		if cmd.InheritedFlags().Lookup("json") == nil {
			t.Errorf("`keytill %s` knows no --json", words)
		}
	}
}

func TestShellsCompleteCommands(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		var out, problems bytes.Buffer
		if code := Run(t.Context(), process(&out, &problems, "completion", shell)); code != exitDone || out.Len() < 1000 {
			t.Errorf("%s: exit %d, %d bytes, %s", shell, code, out.Len(), problems.String())
		}
	}
}
