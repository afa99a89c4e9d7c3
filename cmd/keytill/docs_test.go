package main_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every package that others can import says what it is for, and has an Example whose output is checked.
func TestPublicPackagesHaveDocumentationWithAnExample(t *testing.T) {
	t.Parallel()
	packages := 0
	for _, part := range []string{"adapter", "fulfillment", "inventory", "migrations", "reconcile", "webhooks"} {
		err := filepath.WalkDir(filepath.Join(top, part), func(dir string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() {
				return err
			}
			code, tests := parseDir(t, dir)
			if len(code) == 0 {
				return nil
			}
			packages++
			documented := false
			for _, file := range code {
				documented = documented || strings.HasPrefix(file.Doc.Text(), "Package "+file.Name.Name+" ")
			}
			if !documented {
				t.Errorf("%s has no package documentation", dir)
			}
			checked := false
			for _, example := range doc.Examples(tests...) {
				checked = checked || example.Output != ""
			}
			if !checked {
				t.Errorf("%s has no Example with output", dir)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if packages < 15 {
		t.Errorf("only %d packages were seen", packages)
	}
}

func parseDir(t *testing.T, dir string) (code, tests []*ast.File) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) != ".go" {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, entry.Name()), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(entry.Name(), "_test.go") {
			tests = append(tests, file)
		} else {
			code = append(code, file)
		}
	}
	return code, tests
}
