package api

import (
	"context"
	"net/http"
	"time"

	"github.com/keytill/keytill/reconcile"
)

// SweepInput says how far a sweep looks back.
type SweepInput struct {
	Body *Sweep
}

// Sweep says how far one looks back.
type Sweep struct {
	Hours int `json:"hours,omitempty" minimum:"1" maximum:"8784" doc:"How far to look back; from where the last sweep ended unless said."`
}

// SweepsInput says how many reports to list.
type SweepsInput struct {
	Limit int `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"How many, newest first."`
}

// Started says that a sweep is left to the workers.
type Started struct {
	Queued bool `json:"queued"`
}

func (a *API) addSweeps() {
	add(a, operation{id: "start-sweep", method: http.MethodPost, path: "/v1/sweeps", tag: "Work", repeat: repeatSafe, status: http.StatusAccepted,
		title: "Compare Stripe with the orders now, and settle what differs",
		about: "The daemon's workers do it; its report is in the list when it has ended."}, a.startSweep)
	add(a, operation{id: "list-sweeps", method: http.MethodGet, path: "/v1/sweeps", tag: "Work", title: "Read the reports of the last sweeps"}, a.listSweeps)
}

func (a *API) startSweep(ctx context.Context, in *SweepInput) (*Output[Started], error) {
	if err := a.Sweeps.StartSweep(ctx, caller(ctx).Merchant, time.Duration(given(in.Body).Hours)*time.Hour); err != nil {
		return nil, err
	}
	return &Output[Started]{Started{true}}, nil
}

func (a *API) listSweeps(ctx context.Context, in *SweepsInput) (*ListOutput[reconcile.Report], error) {
	reports, err := a.Sweeps.Reports(ctx, caller(ctx).Merchant, in.Limit)
	if err != nil {
		return nil, err
	}
	for i := range reports { // empty, and not null
		if reports[i].ByKind == nil {
			reports[i].ByKind = map[reconcile.Kind]*reconcile.Tally{}
		}
		if reports[i].ByReason == nil {
			reports[i].ByReason = map[reconcile.Reason]int{}
		}
	}
	return listOf(reports, in.Limit, nil), nil
}
