package cli

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
	return root
}

func TestEveryCommandHelps(t *testing.T) {
	t.Parallel()
	walk(everyCommand(t), func(cmd *cobra.Command) {
		path := cmd.CommandPath()
		if path == "keytill help" {
			return // cobra's own
		}
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: a short help of one line without a full stop, not %q", path, cmd.Short)
		}
		if !cmd.HasSubCommands() && cmd.Args == nil {
			t.Errorf("%s takes whatever is typed after it", path)
		}
		var page bytes.Buffer
		printHelp(&page, cmd)
		for line := range strings.SplitSeq(page.String(), "\n") {
			if n := utf8.RuneCountInString(line); n > helpColumns {
				t.Errorf("%s: a line of the help has %d characters: %s", path, n, line)
			}
		}
		for _, part := range []string{"\nUsage\n", "\nExamples\n"} {
			if !strings.Contains(page.String(), part) {
				t.Errorf("%s: its help has no%sin it:\n%s", path, part, page.String())
			}
		}
	})
}

// Every flag stands in an example of its command; a setting, which all commands have, has an example of its own.
func TestEveryFlagHasAnExample(t *testing.T) {
	t.Parallel()
	root := everyCommand(t)
	walk(root, func(cmd *cobra.Command) {
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && !strings.Contains(cmd.Example+" ", "--"+f.Name+" ") && !strings.Contains(cmd.Example, "--"+f.Name+"\n") {
				t.Errorf("%s: no example has --%s", cmd.CommandPath(), f.Name)
			}
		})
	})
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() != "bool" && len(f.Annotations[exampleOf]) == 0 {
			t.Errorf("--%s has no example", f.Name)
		}
	})
}

// An example that its own command does not take is worse than none.
func TestExamplesAreWhatCommandsTake(t *testing.T) {
	t.Parallel()
	tried := 0
	walk(everyCommand(t), func(cmd *cobra.Command) {
		for line := range strings.SplitSeq(cmd.Example, "\n") {
			if line != "" && (!strings.HasPrefix(line, "  ") || !strings.Contains(line, "keytill")) {
				t.Errorf("%s: the example %q shows no command", cmd.CommandPath(), line)
			}
			for _, words := range calls(line) {
				tried++
				found, rest, err := everyCommand(t).Find(words)
				if err == nil {
					err = found.ParseFlags(rest)
				}
				if err == nil {
					err = found.ValidateArgs(found.Flags().Args())
				}
				if err != nil || !found.Runnable() {
					t.Errorf("%s: %s: %v", cmd.CommandPath(), strings.TrimSpace(line), err)
				}
			}
		}
	})
	if tried < 60 {
		t.Errorf("only %d commands in all examples: are they read?", tried)
	}
}

// calls are the words after keytill of each call in a line of shell.
func calls(line string) (all [][]string) {
	for _, part := range regexp.MustCompile(`&&|[|;<>()]`).Split(quoted.ReplaceAllStringFunc(line, hideMarks), -1) {
		words := quotedWords.FindAllString(part, -1)
		for i, word := range words {
			if word != "keytill" {
				continue
			}
			var call []string
			for _, w := range words[i+1:] {
				call = append(call, strings.Trim(showMarks(w), "'\""))
			}
			all = append(all, call)
			break
		}
	}
	return all
}

var (
	quoted      = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	quotedWords = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|\S)+`)
	shellMarks  = strings.NewReplacer("|", "\x01", ";", "\x02", "<", "\x03", ">", "\x04", "(", "\x05", ")", "\x06", "&", "\x07")
	noMarks     = strings.NewReplacer("\x01", "|", "\x02", ";", "\x03", "<", "\x04", ">", "\x05", "(", "\x06", ")", "\x07", "&")
)

func hideMarks(s string) string { return shellMarks.Replace(s) }

func showMarks(s string) string { return noMarks.Replace(s) }

// interfaceCommands are those that users rely on.
var interfaceCommands = []string{"demo", "serve", "migrate", "keyset new", "keyset rotate", "merchant add", "pool create", "pool map", "pool list",
	"import", "stock", "stock rebuild", "batch list", "batch quarantine", "batch release", "batch recall", "order show", "order resend",
	"order retry", "order settle", "key revoke", "key replace", "key verify", "refund attribute", "findings", "reconcile", "audit", "doctor",
	"token new", "dashboards", "recipe", "completion bash", "completion zsh", "completion fish"}

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

func TestACommandThatThereIsNotIsNamed(t *testing.T) {
	t.Parallel()
	for _, typed := range []string{"batch quarantin --pool editor --last", "batch quarantin", "pool creat game", "batc list"} {
		var out, problems bytes.Buffer
		code := Run(t.Context(), process(&out, &problems, strings.Fields(typed)...))
		words := strings.Fields(typed)
		unknown := words[1]
		if words[0] == "batc" {
			unknown = words[0]
		}
		if code != exitUsage || !strings.Contains(problems.String(), unknown) || strings.Count(problems.String(), "\n") != 1 {
			t.Errorf("%s: exit %d, %s", typed, code, problems.String())
		}
	}
}

func TestEverySettingIsAFlagAndAVariable(t *testing.T) {
	t.Parallel()
	// As users know them; the README and the recipes lean on these names.
	for _, name := range []string{"DATABASE_URL", "STRIPE_API_KEY", "STRIPE_WEBHOOK_SECRETS", "STRIPE_API_URL", "KEYSET", "KEYSET_FILE", "LISTEN",
		"TOKENS_FILE", "SMTP_URL", "MAIL_FROM", "HOOK_URL", "HOOK_SECRET", "RECONCILE_EVERY", "RECONCILE_GRACE", "RESERVATION_TTL", "LOG"} {
		flag := strings.ToLower(strings.ReplaceAll(name, "_", "-"))
		c := &command{Process: process(&bytes.Buffer{}, &bytes.Buffer{})}
		c.Getenv = func(asked string) string {
			if asked == "KEYTILL_"+name {
				return "from the variable"
			}
			return ""
		}
		f := c.root().PersistentFlags().Lookup(flag)
		if f == nil || f.Value.String() != "from the variable" || !strings.Contains(f.Usage, "KEYTILL_"+name) {
			t.Errorf("%s: --%s is %+v", name, flag, f)
			continue
		}
		if err := f.Value.Set("from the flag"); err != nil || f.Value.String() != "from the flag" {
			t.Errorf("--%s does not win over its variable", flag)
		}
	}
}
