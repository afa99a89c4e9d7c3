// Package sqltest prepares every SQL statement that a package's source holds against a migrated database, so that no
// statement can be written and forgotten:
//
//	func TestEveryStatementPrepares(t *testing.T) {
//		t.Parallel()
//		sqltest.Prepare(t, pgtest.New(t), ".", sqltest.Fill{"claimKeys": {{1, ""}, {1, "SKIP LOCKED"}}})
//	}
//
// The statements are found by reading the source: each constant string that begins with an SQL command in capitals,
// named or not. A constant that is used only as a part of other constants is prepared as a part of them.
package sqltest

import (
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Statement is one constant of a package's source that is SQL.
type Statement struct {
	Name string // of the constant; empty for one that stands where it is used
	SQL  string
	Pos  token.Position
}

func (s Statement) String() string {
	if s.Name == "" {
		return fmt.Sprintf("%s:%d", filepath.Base(s.Pos.Filename), s.Pos.Line)
	}
	return s.Name
}

// Fill says, by the constant's name, which arguments of Sprintf make statements of it: one set for each statement.
type Fill map[string][][]any

// Prepare prepares every statement of the package in dir, and fails the test for each that the database refuses. What
// takes no parameters and is not a query (LOCK, CREATE TEMPORARY TABLE) is run, and first, since others may need it.
// Everything happens in one transaction that is rolled back.
func Prepare(t testing.TB, db *pgxpool.Pool, dir string, fill Fill) {
	t.Helper()
	statements, err := Statements(dir)
	if err != nil {
		t.Fatalf("read the package's statements: %v", err)
	}
	if len(statements) == 0 {
		t.Fatalf("no SQL statement in %s", dir)
	}
	statements, err = fill.apply(statements)
	if err != nil {
		t.Error(err)
	}
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	for _, s := range statements {
		if utility.MatchString(s.SQL) {
			check(t, tx, s, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), s.SQL)
				return err
			})
		}
	}
	for i, s := range statements {
		if !utility.MatchString(s.SQL) {
			check(t, tx, s, func(tx pgx.Tx) error {
				_, err := tx.Prepare(t.Context(), fmt.Sprintf("sqltest %d", i), s.SQL)
				return err
			})
		}
	}
	t.Logf("%d statements", len(statements))
}

// check runs f below a savepoint, so that one refused statement leaves the others to be tried.
func check(t testing.TB, tx pgx.Tx, s Statement, f func(pgx.Tx) error) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), tx, f)
	if err != nil {
		t.Errorf("%s: %v\n%s", s, err, s.SQL)
	}
}

func (f Fill) apply(statements []Statement) ([]Statement, error) {
	var (
		all  []Statement
		errs []error
		used = make(map[string]bool)
	)
	for _, s := range statements {
		sets, ok := f[s.Name]
		if !ok {
			all = append(all, s)
			continue
		}
		used[s.Name] = true
		for _, args := range sets {
			filled := s
			filled.SQL = fmt.Sprintf(s.SQL, args...)
			all = append(all, filled)
		}
	}
	for name := range f {
		if !used[name] {
			errs = append(errs, fmt.Errorf("the package has no statement %s to fill", name))
		}
	}
	return all, errors.Join(errs...)
}

var (
	command = regexp.MustCompile(`^\s*(--[^\n]*\n\s*)*(SELECT|INSERT|UPDATE|DELETE|WITH|MERGE|VALUES|TABLE|LOCK|CREATE|ALTER|DROP|TRUNCATE|COPY|SET|EXPLAIN|REFRESH|NOTIFY)\s`)
	// The extended protocol analyses these only when they run.
	utility = regexp.MustCompile(`^\s*(LOCK|CREATE|ALTER|DROP|TRUNCATE|SET|NOTIFY)\s`)
)

// Statements finds the SQL of the package in dir, tests excepted, in the order of its files and lines.
func Statements(dir string) ([]Statement, error) {
	fset := token.NewFileSet()
	files, err := parse(fset, dir)
	if err != nil {
		return nil, err
	}
	// Only constants matter, and those need no import: everything that stays unresolved is passed over.
	info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Defs: make(map[*ast.Ident]types.Object),
		Uses: make(map[*ast.Ident]types.Object)}
	config := types.Config{Error: func(error) {}, Importer: noImports{}}
	_, _ = config.Check(dir, fset, files, info)

	c := collector{fset: fset, info: info, parts: partsOnly(files, info)}
	for _, file := range files {
		ast.Inspect(file, c.visit)
	}
	return c.statements, nil
}

func parse(fset *token.FileSet, dir string) ([]*ast.File, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no Go file in %s", dir)
	}
	return files, nil
}

type noImports struct{}

func (noImports) Import(path string) (*types.Package, error) {
	return nil, fmt.Errorf("%s is not needed", path)
}

// partsOnly are the constants that are used, and only within the declarations of other constants.
func partsOnly(files []*ast.File, info *types.Info) map[types.Object]bool {
	var elsewhere, within = make(map[types.Object]bool), make(map[types.Object]bool)
	for _, file := range files {
		depth := 0
		var visit func(ast.Node) bool
		visit = func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GenDecl:
				if n.Tok == token.CONST && depth == 0 {
					depth++
					ast.Inspect(n, visit)
					depth--
					return false
				}
			case *ast.Ident:
				if depth > 0 {
					within[info.Uses[n]] = true
				} else {
					elsewhere[info.Uses[n]] = true
				}
			}
			return true
		}
		ast.Inspect(file, visit)
	}
	for object := range elsewhere {
		delete(within, object)
	}
	return within
}

type collector struct {
	fset       *token.FileSet
	info       *types.Info
	parts      map[types.Object]bool
	statements []Statement
}

func (c *collector) visit(n ast.Node) (deeper bool) {
	switch n := n.(type) {
	case *ast.ValueSpec:
		for i, value := range n.Values {
			object, ok := c.info.Defs[n.Names[i]].(*types.Const)
			switch {
			case !ok: // a variable's
				ast.Inspect(value, c.visit)
			case !c.parts[object]:
				c.add(n.Names[i].Name, value)
			}
		}
		return false
	case ast.Expr:
		return c.expr(n)
	}
	return true
}

// expr adds the widest constant expression, so that a statement put together from parts is seen whole.
func (c *collector) expr(e ast.Expr) (deeper bool) {
	if _, named := e.(*ast.Ident); named {
		return false // where it is declared
	}
	if _, ok := c.text(e); !ok {
		return true
	}
	c.add("", e)
	return false
}

func (c *collector) add(name string, e ast.Expr) {
	if text, ok := c.text(e); ok && command.MatchString(text) {
		c.statements = append(c.statements, Statement{Name: name, SQL: text, Pos: c.fset.Position(e.Pos())})
	}
}

func (c *collector) text(e ast.Expr) (string, bool) {
	value := c.info.Types[e].Value
	if value == nil || value.Kind() != constant.String {
		return "", false
	}
	return constant.StringVal(value), true
}
