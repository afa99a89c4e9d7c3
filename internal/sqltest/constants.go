package sqltest

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Constants are the values of a string type's constants in the package in dir, sorted. They are read from the source,
// so that a new one cannot be forgotten in a list.
func Constants(dir, typeName string) ([]string, error) {
	fset := token.NewFileSet()
	files, err := parse(fset, dir)
	if err != nil {
		return nil, err
	}
	info := &types.Info{Defs: make(map[*ast.Ident]types.Object)}
	config := types.Config{Error: func(error) {}, Importer: noImports{}}
	_, _ = config.Check(dir, fset, files, info)
	var values []string
	for _, object := range info.Defs {
		c, ok := object.(*types.Const)
		if !ok || c.Val().Kind() != constant.String {
			continue
		}
		if named, ok := c.Type().(*types.Named); ok && named.Obj().Name() == typeName {
			values = append(values, constant.StringVal(c.Val()))
		}
	}
	if len(values) == 0 {
		return nil, fmt.Errorf("%s has no constant of type %s", dir, typeName)
	}
	slices.Sort(values)
	return values, nil
}

const readCheck = `
SELECT pg_get_constraintdef(c.oid)
  FROM pg_constraint c JOIN pg_attribute a ON a.attrelid = c.conrelid AND c.conkey = ARRAY[a.attnum]
 WHERE c.contype = 'c' AND c.conrelid = $1::text::regclass AND a.attname = $2
   AND pg_get_constraintdef(c.oid) LIKE '%ANY (ARRAY[%'`

var literal = regexp.MustCompile(`'([^']*)'::text`)

// Checked are the values that the CHECK of a column lists, sorted.
func Checked(t testing.TB, db *pgxpool.Pool, table, column string) []string {
	t.Helper()
	var definition string
	if err := db.QueryRow(t.Context(), readCheck, table, column).Scan(&definition); err != nil {
		t.Fatalf("the CHECK of %s.%s: %v", table, column, err)
	}
	var values []string
	for _, match := range literal.FindAllStringSubmatch(definition, -1) {
		values = append(values, match[1])
	}
	slices.Sort(values)
	return values
}
