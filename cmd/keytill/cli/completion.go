package cli

import (
	"io"

	"github.com/spf13/cobra"
)

// completion prints what makes a shell complete commands, flags, and values where there are few.
func (c *command) completion() *cobra.Command {
	return group("completion", "Complete commands and flags in your shell",
		c.completionOf("bash", "It needs the package bash-completion.",
			"  source <(keytill completion bash)\n  keytill completion bash > /etc/bash_completion.d/keytill",
			func(root *cobra.Command, w io.Writer) error { return root.GenBashCompletionV2(w, true) }),
		c.completionOf("zsh", "It needs compinit: `autoload -U compinit; compinit` in ~/.zshrc.",
			"  source <(keytill completion zsh)\n  keytill completion zsh > \"${fpath[1]}/_keytill\"",
			func(root *cobra.Command, w io.Writer) error { return root.GenZshCompletion(w) }),
		c.completionOf("fish", "",
			"  keytill completion fish | source\n  keytill completion fish > ~/.config/fish/completions/keytill.fish",
			func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) }),
		c.completionOf("powershell", "",
			"  keytill completion powershell | Out-String | Invoke-Expression",
			func(root *cobra.Command, w io.Writer) error { return root.GenPowerShellCompletionWithDesc(w) }))
}

func (c *command) completionOf(shell, needs, example string, generate func(root *cobra.Command, w io.Writer) error) *cobra.Command {
	return &cobra.Command{
		Use:     shell,
		Short:   "Print the completion for " + shell,
		Long:    "Prints a script that lets " + shell + " complete commands and flags. " + needs,
		Example: example,
		Args:    args(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return generate(cmd.Root(), c.Stdout) },
	}
}

// fewValues are the flags that take one of a few words.
var fewValues = map[string][]cobra.Completion{
	"shortage":   {"wait\tfor stock", "fail\tand ask for a person"},
	"duplicates": {"skip", "refuse"},
	"format":     {"lines", "csv"},
	"separator":  {",", ";", "|", "tab"},
	"role":       {"viewer", "support", "admin", "storefront", "verify"},
	"log":        {"debug", "info", "warn", "error"},
}

// completeValues lets shells complete the values of those flags.
func completeValues(cmd *cobra.Command) {
	for name, values := range fewValues {
		if cmd.Flags().Lookup(name) != nil || cmd.PersistentFlags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // once each
		}
	}
	for _, sub := range cmd.Commands() {
		completeValues(sub)
	}
}
