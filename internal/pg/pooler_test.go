package pg_test

import (
	"testing"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/internal/pgtest"
)

// That a pooler is seen, the recipe for PgBouncer tries with a real one.
func TestAServerThatAnswersItselfIsNoPooler(t *testing.T) {
	t.Parallel()
	pooled, err := pg.Pooled(t.Context(), pgtest.New(t))
	if err != nil || pooled {
		t.Errorf("a pooler: %v, %v", pooled, err)
	}
}
