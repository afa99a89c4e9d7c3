package adapter

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/keytill/keytill/internal/logs"
)

// loggedJobs names the job in every line of the log that its work writes, with the event, order or delivery it is about.
type loggedJobs struct{ river.MiddlewareDefaults }

// logged are the arguments of jobs that the log has, by their names there.
var logged = []struct{ arg, name string }{
	{"merchant_id", "merchant"}, {"event_id", "event"}, {"ref", "order"}, {"order_id", "order"}, {"delivery_id", "delivery"}, {"pool_id", "pool"}, {"item", "item"}}

// Work is around a try of a job. Its arguments are ids and nothing else.
func (*loggedJobs) Work(ctx context.Context, job *rivertype.JobRow, work func(context.Context) error) error {
	ctx = logs.Begin(ctx, "job", fmt.Sprintf("%s %d", job.Kind, job.ID))
	var args map[string]any
	if json.Unmarshal(job.EncodedArgs, &args) == nil { // a job that cannot be read says so by itself
		for _, l := range logged {
			switch value := args[l.arg].(type) {
			case string:
				logs.Note(ctx, l.name, value)
			case float64:
				logs.Note(ctx, l.name, fmt.Sprintf("%.0f", value))
			}
		}
	}
	return work(ctx)
}
