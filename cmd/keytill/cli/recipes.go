package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/keytill/keytill/adapter/recipes"
)

func (c *command) recipe() *cobra.Command {
	return &cobra.Command{
		Use:   "recipe [NAME]",
		Short: "Recipes to copy from: set up, import, rotate, restore, upgrade",
		Long: "Prints a recipe: a short text with commands to copy, for what is done once in a while. Without a name it lists\n" +
			"them all.",
		Example: "  keytill recipe\n  keytill recipe restore | less",
		Args:    atMost("a recipe's NAME"),
		ValidArgsFunction: func(_ *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return recipeNames(given), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, given []string) error {
			if len(given) == 0 {
				return c.listRecipes()
			}
			recipe, err := recipes.Find(given[0])
			if errors.Is(err, recipes.ErrNone) {
				return usage("there is no recipe %q: `keytill recipe` lists those there are", given[0])
			}
			if err != nil {
				return err
			}
			return c.show(recipe, func(w io.Writer) { fmt.Fprint(w, recipe.Text) })
		},
	}
}

func (c *command) listRecipes() error {
	all, err := recipes.All()
	if err != nil {
		return err
	}
	for i := range all {
		all[i].Text = ""
	}
	return c.show(all, func(w io.Writer) {
		table(w, "NAME\tWHAT IT IS ABOUT", func(row func(string, ...any)) {
			for _, r := range all {
				row("%s\t%s", r.Name, r.Title)
			}
		})
		fmt.Fprintln(w, "\n`keytill recipe NAME` prints one.")
	})
}

// recipeNames completes the one argument.
func recipeNames(given []string) []cobra.Completion {
	all, err := recipes.All()
	if err != nil || len(given) > 0 {
		return nil
	}
	var names []cobra.Completion
	for _, r := range all {
		names = append(names, cobra.CompletionWithDesc(r.Name, r.Title))
	}
	return names
}
