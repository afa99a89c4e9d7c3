package integration_test

import (
	"fmt"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// realKeys are the pool's keys as the database has them.
func (s *shelf) realKeys() map[int64]shelfKey {
	rows, err := s.town.db.Query(s.town.ctx, `
SELECT key_id, state, batch_id, coalesce(reserved_for, '') FROM keytill.keys WHERE merchant_id = $1 AND pool_id = $2`, s.pool.Merchant, s.pool.ID)
	s.must(err)
	keys := make(map[int64]shelfKey)
	var (
		id int64
		k  shelfKey
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &k.state, &k.batch, &k.ref}, func() error {
		keys[id] = k
		return nil
	})
	s.must(err)
	return keys
}

// realUnits are the pool's units as the database has them.
func (s *shelf) realUnits() map[place]shelfUnit {
	rows, err := s.town.db.Query(s.town.ctx, `
SELECT order_id, unit, state, coalesce(key_id, 0) FROM keytill.fulfilments WHERE merchant_id = $1 AND pool_id = $2`, s.pool.Merchant, s.pool.ID)
	s.must(err)
	units := make(map[place]shelfUnit)
	var u shelfUnit
	_, err = pgx.ForEachRow(rows, []any{&u.order, &u.unit, &u.state, &u.key}, func() error {
		units[place{u.order, u.unit}] = u
		return nil
	})
	s.must(err)
	return units
}

// compare holds the pool against the shelf in memory: every key, every unit, and the counts.
func (s *shelf) compare(*rapid.T) {
	real := s.realKeys()
	counts := make(inventory.Counts)
	for id, k := range s.keys {
		if got := real[id]; got.state != k.state || got.ref != k.ref {
			s.Errorf("key %d is %s for %q, want %s for %q", id, got.state, got.ref, k.state, k.ref)
		}
		counts[k.state]++
	}
	if len(real) != len(s.keys) {
		s.Errorf("%d keys, want %d", len(real), len(s.keys))
	}
	units := s.realUnits()
	for _, u := range s.units {
		got := units[place{u.order, u.unit}]
		if got.state != u.state || u.state == fulfillment.UnitFulfilled && got.key != u.key {
			s.Errorf("%s/%d is %s with key %d, want %s with key %d", u.order, u.unit, got.state, got.key, u.state, u.key)
		}
	}
	stock, err := inventory.Stock(s.town.ctx, s.town.db, s.pool.Merchant, s.pool.ID)
	s.must(err)
	if got := stock[s.pool.ID]; fmt.Sprint(got) != fmt.Sprint(counts) && len(got)+len(counts) > 0 {
		s.Errorf("counts %v, want %v", got, counts)
	}
	if s.Failed() {
		s.FailNow()
	}
}
