package migrations_test

import (
	"context"
	"fmt"

	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/migrations"
)

func ExampleUp() {
	pool, done := pgtest.Example()
	defer done()
	ctx := context.Background()
	if _, err := pool.Exec(ctx, `DROP SCHEMA keytill CASCADE`); err != nil { // as in a database that keytill never saw
		panic(err)
	}
	pending, err := migrations.Pending(ctx, pool)
	fmt.Println("something to do:", pending, err)

	fmt.Println(migrations.Up(ctx, pool))

	pending, err = migrations.Pending(ctx, pool)
	fmt.Println("something to do:", pending, err)
	// Output:
	// something to do: true <nil>
	// <nil>
	// something to do: false <nil>
}
