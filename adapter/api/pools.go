package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// A Pool is the shelf of one SKU.
type Pool struct {
	SKU string `json:"sku" minLength:"1" maxLength:"255"`
	PoolRules
	CreatedAt *time.Time `json:"created_at,omitempty" readOnly:"true"`
}

// PoolRules are what can be changed of a pool.
type PoolRules struct {
	Name          string             `json:"name,omitempty" maxLength:"500" doc:"What a buyer reads; the SKU unless set."`
	Shortage      inventory.Shortage `json:"shortage,omitempty" enum:"wait,fail" default:"wait" doc:"What a paid unit does without stock."`
	PendingSupply *int64             `json:"pending_supply,omitempty" minimum:"0" doc:"How many units may be sold ahead; any number unless set."`
	ReleaseAt     *time.Time         `json:"release_at,omitempty" doc:"Nothing is announced to buyers before."`
	LowKeys       *int64             `json:"low_keys,omitempty" minimum:"0" doc:"Tell when no more keys are left."`
	LowPercent    *int               `json:"low_percent,omitempty" minimum:"1" maximum:"99" doc:"… or no more than this part of what was last stocked."`
	MaxReserved   *int64             `json:"max_reserved,omitempty" minimum:"0" doc:"How many keys carts may hold at once; any number unless set."`
}

func poolFrom(p inventory.Pool) Pool {
	return Pool{SKU: p.SKU, CreatedAt: &p.CreatedAt, PoolRules: PoolRules{Name: p.Name, Shortage: p.Shortage, PendingSupply: p.PendingSupply,
		ReleaseAt: p.ReleaseAt, LowKeys: p.LowKeys, LowPercent: p.LowPercent, MaxReserved: p.MaxReserved}}
}

func (p Pool) pool(merchant string) inventory.Pool {
	return inventory.Pool{Merchant: merchant, SKU: p.SKU, Name: p.Name, Shortage: p.Shortage, PendingSupply: p.PendingSupply,
		ReleaseAt: p.ReleaseAt, LowKeys: p.LowKeys, LowPercent: p.LowPercent, MaxReserved: p.MaxReserved}
}

// PoolInput is a pool to make.
type PoolInput struct{ Body Pool }

// PoolChangeInput is what a pool is to be from now on: what is left out is not set any more.
type PoolChangeInput struct {
	SKU  string `path:"sku" maxLength:"255"`
	Body PoolRules
}

// A Mapping says what a price or product hands out.
type Mapping struct {
	Item    string `json:"item" doc:"price_… or prod_…"`
	SKU     string `json:"sku,omitempty" doc:"None: no keys here."`
	PerUnit int    `json:"per_unit" doc:"Keys for each unit of quantity."`
}

// MappingInput says what a price or product hands out from now on.
type MappingInput struct {
	Item string `path:"item" maxLength:"255" doc:"A Stripe price (price_…) or product (prod_…)."`
	Body struct {
		SKU     string `json:"sku,omitempty" maxLength:"255" doc:"The pool; left out with no_keys."`
		NoKeys  bool   `json:"no_keys,omitempty" doc:"It is passed over: shipping, say."`
		PerUnit int    `json:"per_unit,omitempty" minimum:"1" maximum:"100" default:"1" doc:"Keys for each unit of quantity."`
	}
}

func (a *API) addPools() {
	add(a, operation{id: "list-pools", method: http.MethodGet, path: "/v1/pools", tag: "Stock", title: "List the pools, by SKU"}, a.listPools)
	add(a, operation{id: "create-pool", method: http.MethodPost, path: "/v1/pools", tag: "Stock", title: "Make a pool", repeat: repeatSafe,
		status: http.StatusCreated}, a.createPool)
	add(a, operation{id: "change-pool", method: http.MethodPut, path: "/v1/pools/{sku}", tag: "Stock", title: "Change a pool's name and rules", repeat: repeatSafe,
		about: "What is left out is not set any more. Units that wait or have failed stay as they are; the release date can be moved until keys are given out."}, a.changePool)
	add(a, operation{id: "list-mappings", method: http.MethodGet, path: "/v1/mappings", tag: "Stock",
		title: "List what prices and products hand out"}, a.listMappings)
	add(a, operation{id: "set-mapping", method: http.MethodPut, path: "/v1/mappings/{item}", tag: "Stock", repeat: repeatSafe,
		title: "Say what a price or product hands out", about: "Orders that waited for it are settled. Units that exist keep their pool."}, a.setMapping)
	add(a, operation{id: "get-stock", method: http.MethodGet, path: "/v1/stock", tag: "Stock", title: "Count the keys, and what waits for them",
		about: "By pool: keys by state, units that wait, days of cover, what carts hold by age, and how many reservations found nothing. " +
			"Where more than a hundred units wait, or carts hold more, their number is that of counted_at, a minute ago at most."}, a.getStock)
}

func (a *API) listPools(ctx context.Context, in *struct{ Page }) (*ListOutput[Pool], error) {
	after, err := in.after("pools")
	if err != nil {
		return nil, err
	}
	pools, err := inventory.PoolsAfter(ctx, a.DB, caller(ctx).Merchant, after.ID, in.Limit+1)
	if err != nil {
		return nil, err
	}
	found := make([]Pool, len(pools))
	for i, p := range pools {
		found[i] = poolFrom(p)
	}
	return listOf(found, in.Limit, func(p Pool) place { return place{List: "pools", ID: p.SKU} }), nil
}

func (a *API) createPool(ctx context.Context, in *PoolInput) (*Output[Pool], error) {
	made, err := a.Service.CreatePool(ctx, in.Body.pool(caller(ctx).Merchant), who(ctx, ""))
	if err != nil {
		return nil, err
	}
	return &Output[Pool]{poolFrom(made)}, nil
}

func (a *API) changePool(ctx context.Context, in *PoolChangeInput) (*Output[Pool], error) {
	changed, err := a.Service.ChangePool(ctx, Pool{SKU: in.SKU, PoolRules: in.Body}.pool(caller(ctx).Merchant), who(ctx, ""))
	if err != nil {
		return nil, err
	}
	return &Output[Pool]{poolFrom(changed)}, nil
}

func (a *API) listMappings(ctx context.Context, in *struct{ Page }) (*ListOutput[Mapping], error) {
	after, err := in.after("mappings")
	if err != nil {
		return nil, err
	}
	items, err := inventory.ItemsAfter(ctx, a.DB, caller(ctx).Merchant, after.ID, in.Limit+1)
	if err != nil {
		return nil, err
	}
	found := make([]Mapping, len(items))
	for i, it := range items {
		found[i] = Mapping{Item: it.Item, PerUnit: it.PerUnit, SKU: it.SKU}
	}
	return listOf(found, in.Limit, func(m Mapping) place { return place{List: "mappings", ID: m.Item} }), nil
}

func (a *API) setMapping(ctx context.Context, in *MappingInput) (*Output[Mapping], error) {
	if (in.Body.SKU == "") != in.Body.NoKeys {
		return nil, fmt.Errorf("%w: name a sku, or say no_keys", errInvalid)
	}
	merchant := caller(ctx).Merchant
	var pool *inventory.Pool
	if in.Body.SKU != "" {
		found, err := inventory.PoolBySKU(ctx, a.DB, merchant, in.Body.SKU)
		if err != nil {
			return nil, err
		}
		pool = &found
	}
	perUnit := max(in.Body.PerUnit, 1)
	if err := a.Service.Map(ctx, merchant, in.Item, pool, perUnit); err != nil {
		return nil, err
	}
	return &Output[Mapping]{Mapping{Item: in.Item, SKU: in.Body.SKU, PerUnit: perUnit}}, nil
}

func (a *API) getStock(ctx context.Context, in *struct{ Page }) (*ListOutput[fulfillment.PoolOverview], error) {
	after, err := in.after("stock")
	if err != nil {
		return nil, err
	}
	pools, err := fulfillment.Overview(ctx, a.DB, caller(ctx).Merchant, after.ID, in.Limit+1, a.Now())
	if err != nil {
		return nil, err
	}
	return listOf(pools, in.Limit, func(p fulfillment.PoolOverview) place { return place{List: "stock", ID: p.SKU} }), nil
}
