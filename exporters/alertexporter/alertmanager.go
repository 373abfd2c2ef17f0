package alertexporter

import "time"

// alertsPath is where an Alertmanager takes alerts: its API v2, postableAlerts
// (github.com/prometheus/alertmanager, api/v2/openapi.yaml).
const alertsPath = "/api/v2/alerts"

// mostAtOnce bounds the alerts of one request.
const mostAtOnce = 64

// postable is an alert as the API takes it.
type postable struct {
	alert
	Ends time.Time `json:"endsAt"`
}

// standing is an alert that is open now. What is not told again ends by itself, so that
// nothing stands for ever when this process is gone. What began by a clock that was ahead
// begins now: an Alertmanager refuses an alert that begins after its end.
func (c *Config) standing(a alert, now time.Time) postable {
	if a.Starts.After(now) {
		a.Starts = now
	}
	return postable{a, now.Add(c.lasts())}
}

// lasts is how long an Alertmanager remembers what it was told.
func (c *Config) lasts() time.Duration { return 4 * c.Resend }

// ended is an alert that is over. An Alertmanager refuses one that ends before it began,
// and one whose end is to come is open.
func ended(a alert, at, now time.Time) postable {
	if at.After(now) {
		at = now
	}
	if a.Starts.After(at) {
		a.Starts = at
	}
	return postable{a, at}
}

// told is an end, and when it was told.
type told struct {
	postable
	at time.Time
}
