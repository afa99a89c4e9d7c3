package api

import (
	"context"
	"net/http"

	"github.com/keytill/keytill/fulfillment"
)

func (a *API) addLists() {
	add(a, operation{id: "list-findings", method: http.MethodGet, path: "/v1/findings", tag: "Work",
		title: "List what a person must look at, oldest first"}, a.listFindings)
	add(a, operation{id: "list-audit", method: http.MethodGet, path: "/v1/audit", tag: "Work",
		title: "List who revealed, revoked, replaced or imported what, newest first"}, a.listAudit)
}

func (a *API) listFindings(ctx context.Context, in *struct{ Page }) (*ListOutput[fulfillment.Finding], error) {
	after, err := in.after("findings")
	if err != nil {
		return nil, err
	}
	found, err := fulfillment.ListFindings(ctx, a.DB, caller(ctx).Merchant, after.N, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return listOf(found, in.Limit, func(f fulfillment.Finding) place { return place{List: "findings", N: f.ID} }), nil
}

func (a *API) listAudit(ctx context.Context, in *struct{ Page }) (*ListOutput[fulfillment.Recorded], error) {
	after, err := in.after("audit")
	if err != nil {
		return nil, err
	}
	acts, err := fulfillment.ListActs(ctx, a.DB, caller(ctx).Merchant, after.N, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return listOf(acts, in.Limit, func(r fulfillment.Recorded) place { return place{List: "audit", N: r.ID} }), nil
}
