package api

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// ImportInput is a supplier's file with what to do with it.
type ImportInput struct {
	SKU         string `path:"sku" maxLength:"255"`
	DryRun      bool   `query:"dry_run" doc:"The same report, and nothing changes."`
	Force       bool   `query:"force" doc:"Even if the same file was imported before."`
	File        string `query:"file" maxLength:"255" default:"upload.txt" doc:"The file's name, for the records; one that ends in .csv is read as CSV."`
	Supplier    string `query:"supplier" maxLength:"255" doc:"Whom the keys are from."`
	Format      string `query:"format" enum:"lines,csv" doc:"By the file's name and the other settings unless said."`
	Column      string `query:"column" maxLength:"255" doc:"The keys' column of a CSV file, by name or number from 1."`
	UseByColumn string `query:"use_by_column" maxLength:"255" doc:"The column with each key's last day of use, like 2027-12-31."`
	NoHeader    bool   `query:"no_header" doc:"The first row is a key's."`
	Separator   string `query:"separator" enum:"comma,semicolon,pipe,tab" doc:"What separates columns; a comma unless said."`
	Duplicates  string `query:"duplicates" enum:"skip,refuse" default:"skip" doc:"What becomes of a file with keys that are there already."`
	AcrossPools bool   `query:"across_pools" doc:"Keys of the merchant's other pools count as there already."`
	RawBody     []byte `contentType:"application/octet-stream"`
}

// Imported is what became of a file.
type Imported struct {
	inventory.Report
	DryRun bool `json:"dry_run"`
	Served int  `json:"served" doc:"Units that waited and got a key."`
}

// BatchesInput names a pool.
type BatchesInput struct {
	Page
	SKU string `path:"sku" maxLength:"255"`
}

// BatchInput says what is to become of a batch.
type BatchInput struct {
	SKU   string `path:"sku" maxLength:"255"`
	Batch int64  `path:"batch" minimum:"1"`
	Body  struct {
		State  inventory.BatchState `json:"state" enum:"imported,quarantined,recalled" doc:"quarantined: what is not sold is kept off the shelf; imported: it is back; recalled: it is gone for good."`
		Reason string               `json:"reason,omitempty" maxLength:"500" doc:"Why, for the audit."`
	}
}

func (a *API) addImports() {
	add(a, operation{id: "import-keys", method: http.MethodPost, path: "/v1/pools/{sku}/imports", tag: "Stock", repeat: repeatSafe, body: maxImport,
		title: "Bring a file of keys onto the shelf",
		about: "All of it or nothing; units that waited get their keys at once. The body is the file itself, up to 32 MiB: one key a line, " +
			"or CSV. Larger files go in parts, or by `keytill import`."}, a.importKeys)
	add(a, operation{id: "list-batches", method: http.MethodGet, path: "/v1/pools/{sku}/batches", tag: "Stock",
		title: "List a pool's imports, newest first"}, a.listBatches)
	add(a, operation{id: "set-batch-state", method: http.MethodPut, path: "/v1/pools/{sku}/batches/{batch}/state", tag: "Stock", repeat: repeatSafe,
		title: "Quarantine, release or recall a batch", about: "What is sold stays with its buyers; the answer lists it."}, a.setBatchState)
}

var separators = map[string]rune{"": 0, "comma": ',', "semicolon": ';', "pipe": '|', "tab": '\t'}

func (a *API) importKeys(ctx context.Context, in *ImportInput) (*Output[Imported], error) {
	pool, err := inventory.PoolBySKU(ctx, a.DB, caller(ctx).Merchant, in.SKU)
	if err != nil {
		return nil, err
	}
	imp := inventory.Import{Pool: pool, File: bytes.NewReader(in.RawBody), FileName: in.File, Supplier: in.Supplier, Actor: caller(ctx).Name,
		Format: inventory.Format(in.Format), Column: in.Column, UseByColumn: in.UseByColumn, NoHeader: in.NoHeader,
		Separator: separators[in.Separator], Duplicates: inventory.DuplicatePolicy(in.Duplicates), AcrossPools: in.AcrossPools,
		DryRun: in.DryRun, Force: in.Force, At: a.Now()}
	if imp.Format == inventory.FormatLines && (in.Column != "" || in.UseByColumn != "" || in.NoHeader || in.Separator != "") {
		return nil, fmt.Errorf("%w: column, use_by_column, no_header and separator are for CSV", errInvalid)
	}
	report, served, err := a.Service.Import(ctx, imp)
	if err != nil {
		return nil, err
	}
	return &Output[Imported]{Imported{report, in.DryRun, served}}, nil
}

func (a *API) listBatches(ctx context.Context, in *BatchesInput) (*ListOutput[inventory.Batch], error) {
	after, err := in.after("batches")
	if err != nil {
		return nil, err
	}
	pool, err := inventory.PoolBySKU(ctx, a.DB, caller(ctx).Merchant, in.SKU)
	if err != nil {
		return nil, err
	}
	batches, err := inventory.BatchesBefore(ctx, a.DB, pool.Merchant, pool.ID, after.N, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return listOf(batches, in.Limit, func(b inventory.Batch) place { return place{List: "batches", N: b.ID} }), nil
}

func (a *API) setBatchState(ctx context.Context, in *BatchInput) (*Output[fulfillment.BatchChange], error) {
	pool, err := inventory.PoolBySKU(ctx, a.DB, caller(ctx).Merchant, in.SKU)
	if err != nil {
		return nil, err
	}
	done, err := a.Service.SetBatchState(ctx, pool, in.Batch, in.Body.State, who(ctx, in.Body.Reason))
	if err != nil {
		return nil, err
	}
	return &Output[fulfillment.BatchChange]{done}, nil
}
