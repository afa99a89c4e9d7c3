package fulfillment

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// An OrderHead is an order as a list shows it: its first lines, and its units by state as far as countedUnits.
type OrderHead struct {
	Order     // with the first lines, and without units
	MoreLines bool
	Tallies   []Tally
	MoreUnits bool // there are more units than were counted
}

// A Tally is how many units of an order are in a state.
type Tally struct {
	State UnitState
	N     int
}

const (
	headLines    = 3
	countedUnits = 200

	// Index: lines_pkey, pools_pkey. An order's lines are as many as a checkout has.
	readHeadLines = readOrderLines + ` LIMIT $3`

	// Index: fulfilments_pkey.
	tallyUnits = `
SELECT state, count(*)
  FROM (SELECT state FROM keytill.fulfilments WHERE merchant_id = $1 AND order_id = $2 ORDER BY line_id, unit LIMIT $3) AS part
 GROUP BY state`
)

// ListHeads lists a page of orders as ListOrders does, each of them in short: what it reads does not grow with what the
// orders hold.
func ListHeads(ctx context.Context, db Reader, merchant string, f OrderFilter, after *OrderPlace, most int) ([]OrderHead, error) {
	places, err := listPlaces(ctx, db, merchant, f, after, most)
	if err != nil {
		return nil, err
	}
	return loadHeads(ctx, db, merchant, places)
}

// LoadHeads reads orders in short. Those that there are not are left out.
func LoadHeads(ctx context.Context, db Reader, merchant string, ids []string) ([]OrderHead, error) {
	places := make([]OrderPlace, len(ids))
	for i, id := range ids {
		places[i].ID = id
	}
	return loadHeads(ctx, db, merchant, places)
}

func loadHeads(ctx context.Context, db Reader, merchant string, places []OrderPlace) ([]OrderHead, error) {
	heads := make([]OrderHead, len(places))
	batch := &pgx.Batch{}
	for i, p := range places {
		h := &heads[i]
		batch.Queue(readOrder, merchant, p.ID).QueryRow(func(row pgx.Row) error {
			if err := h.scan(row); !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			return nil
		})
		batch.Queue(readHeadLines, merchant, p.ID, headLines+1).Query(h.scanLines)
		batch.Queue(tallyUnits, merchant, p.ID, countedUnits+1).Query(h.scanTallies)
	}
	if err := db.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("read %d orders: %w", len(places), err)
	}
	found := heads[:0]
	for i, h := range heads {
		if h.ID == "" {
			continue
		}
		h.ListedAt = places[i].At
		if h.MoreLines = len(h.Lines) > headLines; h.MoreLines {
			h.Lines = h.Lines[:headLines]
		}
		found = append(found, h)
	}
	return found, nil
}

func (h *OrderHead) scanLines(rows pgx.Rows) error {
	lines, err := pgx.CollectRows(rows, scanOrderLine)
	for _, l := range lines {
		h.Lines = append(h.Lines, l.OrderLine)
	}
	return err
}

func (h *OrderHead) scanTallies(rows pgx.Rows) error {
	counts := make(map[UnitState]int)
	var (
		state UnitState
		n     int
		all   int
	)
	_, err := pgx.ForEachRow(rows, []any{&state, &n}, func() error {
		counts[state] = n
		all += n
		return nil
	})
	for _, state := range UnitStates {
		if counts[state] > 0 {
			h.Tallies = append(h.Tallies, Tally{state, counts[state]})
		}
	}
	if h.MoreUnits = all > countedUnits; h.MoreUnits {
		h.Tallies[0].N-- // the one too many
	}
	return err
}

// A UnitPlace is where a part of an order's units begins: a line by its place in the order, and a unit of it.
type UnitPlace struct {
	Line int // from 1
	Unit int
}

// An OrderPart is an order with some of its units: those of a page.
type OrderPart struct {
	Order               // all lines, and of their units those of the part
	Counts  []int       // how many units each line has
	Places  []int       // each line's place in the order, as UnitPlace names it
	Next    *UnitPlace  // where the next part begins; nil at the end
	HasLive bool        // a unit of the order has a live key, in this part or not
	ranges  []unitRange // what the part has of each line
}

type unitRange struct {
	line     string
	from, to int
}

const (
	// Index: lines_pkey, pools_pkey.
	readPartLines = `
SELECT l.line_id, l.price, l.product, l.description, l.quantity, l.amount, coalesce(p.sku, ''), coalesce(p.name, ''), p.release_at,
       l.ordinal, CASE WHEN l.pool_id IS NULL THEN 0 ELSE l.quantity * l.per_unit END
  FROM keytill.lines l
  LEFT JOIN keytill.pools p ON p.merchant_id = l.merchant_id AND p.pool_id = l.pool_id
 WHERE l.merchant_id = $1 AND l.order_id = $2
 ORDER BY l.ordinal`

	// Of each line no more than the part takes. Index: lines_pkey, fulfilments_pkey.
	readPartUnits = `
SELECT l.line_id, f.unit, f.state, coalesce(f.key_id, 0), coalesce(f.revoked_by, ''), f.changed_at, f.revealed_at
  FROM (SELECT line_id, ordinal FROM keytill.lines WHERE merchant_id = $1 AND order_id = $2 AND ordinal >= $3) AS l
 CROSS JOIN LATERAL (
       SELECT unit, state, key_id, revoked_by, changed_at, revealed_at FROM keytill.fulfilments
        WHERE merchant_id = $1 AND order_id = $2 AND line_id = l.line_id AND unit >= CASE WHEN l.ordinal = $3 THEN $4::int ELSE 1 END
        ORDER BY unit LIMIT $5) AS f
 ORDER BY l.ordinal, f.unit
 LIMIT $5`

	// In the index's order: a planner that thinks of a large order reads the table from its beginning else, until it meets
	// one of the order's keys. Index: keys_live_unit.
	readHasLive = `
SELECT (SELECT key_id FROM keytill.keys WHERE merchant_id = $1 AND order_id = $2 AND state IN ('allocated', 'suspended')
         ORDER BY order_id, line_id, unit LIMIT 1) IS NOT NULL`
)

// LoadPart reads an order with so many of its units at most, from a place on, or ErrNoOrder. What it reads does not grow
// with the number of units that the order has.
func LoadPart(ctx context.Context, db Reader, merchant, id string, from UnitPlace, most int) (OrderPart, error) {
	var p OrderPart
	batch := &pgx.Batch{}
	batch.Queue(readOrder, merchant, id).QueryRow(func(row pgx.Row) error {
		if err := p.scan(row); !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return nil
	})
	batch.Queue(readPartLines, merchant, id).Query(p.scanPartLines)
	batch.Queue(readPartUnits, merchant, id, from.Line, from.Unit, most+1).Query(func(rows pgx.Rows) error { return p.scanPartUnits(rows, most) })
	batch.Queue(readHasLive, merchant, id).QueryRow(func(row pgx.Row) error { return row.Scan(&p.HasLive) })
	if err := db.SendBatch(ctx, batch).Close(); err != nil {
		return OrderPart{}, fmt.Errorf("read order %s: %w", id, err)
	}
	if p.ID == "" {
		return OrderPart{}, fmt.Errorf("%s: %w", id, ErrNoOrder)
	}
	return p, nil
}

func (p *OrderPart) scanPartLines(rows pgx.Rows) (err error) {
	p.Lines, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l OrderLine, err error) {
		var place, units int
		err = row.Scan(&l.ID, &l.Price, &l.Product, &l.Description, &l.Quantity, &l.Amount, &l.SKU, &l.Name, &l.ReleaseAt, &place, &units)
		p.Places, p.Counts = append(p.Places, place), append(p.Counts, units)
		return l, err
	})
	return err
}

// scanPartUnits puts the units to their lines, and takes off the one too many, by which it is known where the next part begins.
func (p *OrderPart) scanPartUnits(rows pgx.Rows, most int) error {
	at := make(map[string]int, len(p.Lines))
	for i, l := range p.Lines {
		at[l.ID] = i
	}
	read := 0
	var u lineUnit
	_, err := pgx.ForEachRow(rows, []any{&u.line, &u.Unit, &u.State, &u.KeyID, &u.RevokedBy, &u.ChangedAt, &u.RevealedAt}, func() error {
		i, ok := at[u.line]
		if !ok {
			return nil // a line that came since the lines were read
		}
		if read++; read > most {
			p.Next = &UnitPlace{p.Places[i], u.Unit}
			return nil
		}
		l := &p.Lines[i]
		if len(l.Units) == 0 {
			p.ranges = append(p.ranges, unitRange{line: u.line, from: u.Unit})
		}
		l.Units = append(l.Units, u.OrderUnit)
		p.ranges[len(p.ranges)-1].to = u.Unit
		return nil
	})
	return err
}

// Index: lines_pkey.
const readPlaceOfLine = `SELECT ordinal FROM keytill.lines WHERE merchant_id = $1 AND order_id = $2 AND line_id = $3`

// PlaceOfLine is a line's place in its order, or ErrNoLine.
func PlaceOfLine(ctx context.Context, db Reader, merchant, order, line string) (place int, err error) {
	err = db.QueryRow(ctx, readPlaceOfLine, merchant, order, line).Scan(&place)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, fmt.Errorf("%s of order %s: %w", line, order, ErrNoLine)
	}
	if err != nil {
		return 0, fmt.Errorf("look for line %s of order %s: %w", line, order, err)
	}
	return place, nil
}

// OrderIDs finds the orders that something means which a buyer may hold, newest first, so many at most.
func OrderIDs(ctx context.Context, db Reader, merchant, query string, most int) ([]string, error) {
	places, err := listPlaces(ctx, db, merchant, OrderFilter{Query: query}, nil, most)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(places))
	for i, p := range places {
		ids[i] = p.ID
	}
	return ids, nil
}
