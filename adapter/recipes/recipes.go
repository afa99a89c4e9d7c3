// Package recipes holds what people who run keytill look up, each with commands to copy: `keytill recipe` prints them.
//
//	recipe.md: # Title ── prose, ```sh blocks to type, ```text blocks that say what comes of them
//
// All of their commands are run, in order, by the tests of cmd/keytill, which compare what they print with what the recipe
// says they do. In a text block … stands for anything within a line, and on a line of its own for any lines; times are
// examples.
package recipes

import (
	"embed"
	"errors"
	"fmt"
	"strings"
)

//go:embed *.md
var files embed.FS

// A Recipe is one of them.
type Recipe struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Text  string `json:"text,omitempty"` // Markdown, in lines of 80 characters
}

// names are all recipes, in the order in which they are listed.
var names = []string{"go-shop", "any-language", "import", "rotate", "restore", "upgrade", "pgbouncer"}

// ErrNone is returned for a name that no recipe has.
var ErrNone = errors.New("there is no such recipe")

// All are all recipes.
func All() ([]Recipe, error) {
	all := make([]Recipe, len(names))
	for i, name := range names {
		var err error
		if all[i], err = Find(name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Find finds a recipe by its name.
func Find(name string) (Recipe, error) {
	text, err := files.ReadFile(name + ".md")
	if err != nil {
		return Recipe{}, fmt.Errorf("%w: %q", ErrNone, name)
	}
	head, _, _ := strings.Cut(string(text), "\n")
	return Recipe{Name: name, Title: strings.TrimPrefix(head, "# "), Text: string(text)}, nil
}
