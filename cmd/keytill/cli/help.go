package cli

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpColumns is how wide help may be: what every terminal has.
const helpColumns = 80

// printHelp prints a command's help as a manual page has it: what it is for, how it is called, what it does, examples,
// flags. The settings that all commands share are in the help of keytill itself, and nowhere else.
func printHelp(w io.Writer, cmd *cobra.Command) {
	if cmd.HasParent() {
		wrap(w, cmd.CommandPath()+": "+cmd.Short, "", "  ")
		fmt.Fprintln(w)
	}
	about := cmd.Long
	if about != "" {
		reflow(w, about)
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, "Usage")
	wrap(w, usageLine(cmd), "  ", "      ")
	printCommands(w, cmd)
	if example := examples(cmd); example != "" {
		fmt.Fprintf(w, "\nExamples\n%s\n", strings.TrimRight(example, "\n"))
	}
	own, shared := cmd.LocalNonPersistentFlags(), cmd.InheritedFlags()
	printFlags(w, "Flags", own)
	switch {
	case !cmd.HasParent():
		printFlags(w, "Settings of all commands, by flag or by variable", cmd.PersistentFlags())
	case shared.HasFlags():
		fmt.Fprintln(w)
		wrap(w, "Every command also takes --json, --merchant and the settings that `keytill help` lists.", "", "")
	}
}

// usageLine is how a command is called.
func usageLine(cmd *cobra.Command) string {
	line := cmd.UseLine()
	switch {
	case cmd.HasAvailableSubCommands() && cmd.Args != nil: // it is a command itself, too
		line += " | " + cmd.CommandPath() + " COMMAND"
	case cmd.HasAvailableSubCommands():
		line += " COMMAND"
	case !strings.Contains(line, "--") && cmd.LocalNonPersistentFlags().HasAvailableFlags():
		line += " [FLAGS]"
	}
	return strings.ReplaceAll(line, " [flags]", "")
}

// examples are a command's own, or the first of each command that it holds.
func examples(cmd *cobra.Command) string {
	if cmd.Example != "" || !cmd.HasAvailableSubCommands() {
		return cmd.Example
	}
	var all strings.Builder
	for _, sub := range cmd.Commands() {
		first, _, _ := strings.Cut(examples(sub), "\n")
		all.WriteString(first + "\n")
	}
	return all.String()
}

func printCommands(w io.Writer, cmd *cobra.Command) {
	var shown []*cobra.Command
	widest := 0
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() || sub.Name() == "help" {
			shown, widest = append(shown, sub), max(widest, len(sub.Name()))
		}
	}
	if len(shown) == 0 {
		return
	}
	fmt.Fprintln(w, "\nCommands")
	for _, sub := range shown {
		wrap(w, sub.Short, fmt.Sprintf("  %-*s  ", widest, sub.Name()), strings.Repeat(" ", widest+4))
	}
	fmt.Fprintln(w)
	wrap(w, fmt.Sprintf("`%s COMMAND --help` says more of one.", cmd.CommandPath()), "", "")
}

// printFlags prints each flag with an example of its value, and below it what it means.
func printFlags(w io.Writer, title string, flags *pflag.FlagSet) {
	begun := false
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Hidden {
			return
		}
		if !begun {
			fmt.Fprintf(w, "\n%s\n", title)
			begun = true
		}
		value, about := strings.Join(f.Annotations[exampleOf], ""), f.Usage
		if value == "" && f.Value.Type() != "bool" {
			value = f.DefValue
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && !strings.Contains(about, "unless") {
			about += fmt.Sprintf("; %s unless set", f.DefValue)
		}
		fmt.Fprintf(w, "  %s\n", strings.TrimSpace("--"+f.Name+" "+value))
		wrap(w, about, "      ", "      ")
	})
}

// exampleOf names the annotation that holds an example of a flag's value.
const exampleOf = "keytill_example"

var quotedExample = regexp.MustCompile("`([^`]+)`")

// takeExamples finds the example that a flag's description quotes. One at its end is not a part of the sentence.
func takeExamples(cmd *cobra.Command) {
	take := func(f *pflag.Flag) {
		found := quotedExample.FindStringSubmatch(f.Usage)
		if found == nil {
			return
		}
		f.Annotations = map[string][]string{exampleOf: {found[1]}}
		if before, atEnd := strings.CutSuffix(f.Usage, found[0]); atEnd {
			f.Usage = strings.TrimRight(before, ": ")
			return
		}
		f.Usage = strings.Replace(f.Usage, found[0], found[1], 1)
	}
	cmd.PersistentFlags().VisitAll(take)
	cmd.Flags().VisitAll(take)
	for _, sub := range cmd.Commands() {
		takeExamples(sub)
	}
}

// reflow prints paragraphs in lines that fit. Lines that are indented stay as they are.
func reflow(w io.Writer, text string) {
	for i, paragraph := range strings.Split(text, "\n\n") {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if strings.HasPrefix(paragraph, " ") {
			fmt.Fprintln(w, paragraph)
			continue
		}
		wrap(w, strings.ReplaceAll(paragraph, "\n", " "), "", "")
	}
}

// wrap prints words in lines that fit, the first behind one margin and the others behind another.
func wrap(w io.Writer, text, first, rest string) {
	line, margin := first, first
	for _, word := range strings.Fields(text) {
		switch {
		case line == margin:
			line += word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= helpColumns:
			line += " " + word
		default:
			fmt.Fprintln(w, strings.TrimRight(line, " "))
			line, margin = rest+word, rest
		}
	}
	fmt.Fprintln(w, strings.TrimRight(line, " "))
}
