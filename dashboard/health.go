package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// Maximum number of a webhook's newest deliveries in its health, which limits the cost of a page.
const (
	listSample = 200  // per webhook of a list
	pageSample = 1000 // on the webhook's own page
)

// hours is the period of the health. The chart shows it by clock hours, which are one more.
const hours = 24

// A healthView summarizes the attempts of the last 24 hours at a webhook.
type healthView struct {
	Attempts  int
	Succeeded int
	Rate      string // of success: "99.2%"
	State     string // a mark of style.css
	Median    string // of the response times; empty: there was no response
	P95       string
	Partial   bool  // not all deliveries were read
	Since     *when // if Partial, the publication time of the oldest delivery read; nil if none was
	Chart     chart
}

// Summary describes the chart in words.
func (h healthView) Summary() string {
	switch {
	case h.Attempts == 0 && h.Partial:
		return "No attempts for the most recent events"
	case h.Attempts == 0:
		return "No attempts in the last 24 hours"
	}
	text := fmt.Sprintf("%s of %s in the last 24 hours succeeded", h.Rate, count(h.Attempts, "attempt"))
	if h.Median != "" {
		text += "; the median response took " + h.Median
	}
	return text
}

// health computes the health of a webhook from its newest deliveries, at most most.
func (p *pages) health(c *call, webhookID string, most int) (healthView, error) {
	now := p.now()
	from := now.Add(-hours * time.Hour)
	deliveries, partial, err := p.newest(c, webhookID, from, most)
	if err != nil {
		return healthView{}, err
	}
	var (
		view  healthView
		each  [hours + 1]hour
		first = from.Truncate(time.Hour)
		times []time.Duration // of responses
	)
	for _, delivery := range deliveries {
		for _, attempt := range delivery.Attempts {
			at := int(attempt.StartedAt.Sub(first) / time.Hour)
			if attempt.StartedAt.Before(from) || at >= len(each) || attempt.Class == webhooks.ClassExpired {
				continue
			}
			view.Attempts++
			each[at].attempts++
			if attempt.Class == "" {
				view.Succeeded++
				each[at].succeeded++
			}
			// The time of a refused connection, for example, says nothing about responses.
			if attempt.Status != 0 || attempt.Class == webhooks.ClassTimeout {
				times = append(times, attempt.Duration)
				each[at].times = append(each[at].times, attempt.Duration)
			}
		}
	}
	if view.Partial = partial; partial && len(deliveries) > 0 {
		view.Since = p.when(deliveries[len(deliveries)-1].PublishedAt)
	}
	view.Chart = draw(first, each[:])
	if view.Attempts == 0 {
		return view, nil
	}
	if len(times) > 0 {
		slices.Sort(times)
		view.Median, view.P95 = took(quantile(times, 50)), took(quantile(times, 95))
	}
	rate := float64(view.Succeeded) / float64(view.Attempts)
	view.Rate = percent(view.Succeeded, view.Attempts)
	switch {
	case rate >= 0.99:
		view.State = "good"
	case rate >= 0.9:
		view.State = "warn"
	default:
		view.State = "bad"
	}
	return view, nil
}

// maxSteps is the maximum number of queries of newest, which needs several if deliveries are rare.
const maxSteps = 4

// newest returns the webhook's newest deliveries since from, at most most, and whether there may be
// more.
func (p *pages) newest(c *call, webhookID string, from time.Time, most int) (list []webhooks.Delivery, partial bool, err error) {
	query := webhooks.DeliveryQuery{From: from, Limit: most}
	for range maxSteps {
		page, err := p.webhooks.ListDeliveries(c.Context(), c.account, webhookID, query)
		if err != nil {
			return nil, false, err
		}
		list = append(list, page.Deliveries...)
		if page.Next == "" {
			return list, false, nil
		}
		if query.After, query.Limit = page.Next, most-len(list); query.Limit == 0 {
			break
		}
	}
	return list, true, nil
}

// percent returns a percentage, rounded down, so that it is 100 only if part equals whole.
func percent(part, whole int) string {
	thousandths := part * 1000 / whole
	if thousandths%10 == 0 {
		return fmt.Sprintf("%d%%", thousandths/10)
	}
	return fmt.Sprintf("%d.%d%%", thousandths/10, thousandths%10)
}

// quantile returns a percentile of sorted times.
func quantile(sorted []time.Duration, percentile int) time.Duration {
	return sorted[min(len(sorted)*percentile/100, len(sorted)-1)]
}

// An hour has the attempts of one hour.
type hour struct {
	attempts  int
	succeeded int
	times     []time.Duration // of responses
}

// The dimensions of a chart, in its own units.
const (
	barWidth    = 8
	barGap      = 2
	chartHeight = 48
	tickHours   = 6
)

// A chart shows, for each clock hour with the latest at the right, how many attempts succeeded and
// failed, and the median response time as a line.
type chart struct {
	Width, Height int
	Bars          []bar
	Lines         []string // points of each run of hours with responses
	Most          int      // number of attempts at the top of the chart
	Longest       string   // response time at the top of the chart; empty: there is no line
	Ticks         []tick
}

// A tick labels the beginning of an hour.
type tick struct {
	Percent int    // of the width
	ISO     string // for scripts, which show it in the reader's zone
	Label   string // in UTC
}

// A bar is an hour. Succeeded is drawn below Failed.
type bar struct {
	X, Width              int
	SucceededY, Succeeded int
	FailedY, Failed       int
}

// draw draws hours, the first of which begins at first.
func draw(first time.Time, each []hour) chart {
	c := chart{Width: len(each) * (barWidth + barGap), Height: chartHeight}
	longest := time.Duration(0)
	medians := make([]time.Duration, len(each))
	for i := range each {
		if at := first.UTC().Add(time.Duration(i) * time.Hour); at.Hour()%tickHours == 0 {
			c.Ticks = append(c.Ticks, tick{100 * i / len(each), at.Format(time.RFC3339), at.Format("15:04")})
		}
		c.Most = max(c.Most, each[i].attempts)
		if len(each[i].times) > 0 {
			slices.Sort(each[i].times)
			medians[i] = quantile(each[i].times, 50)
			longest = max(longest, medians[i])
		}
	}
	var line []string
	for i, h := range each {
		x := i * (barWidth + barGap)
		if h.attempts > 0 {
			failed := scale(h.attempts-h.succeeded, c.Most)
			succeeded := scale(h.succeeded, c.Most)
			c.Bars = append(c.Bars, bar{
				X: x, Width: barWidth,
				SucceededY: chartHeight - succeeded, Succeeded: succeeded,
				FailedY: max(chartHeight-succeeded-failed, 0), Failed: failed,
			})
		}
		if len(h.times) == 0 {
			c.Lines, line = appendLine(c.Lines, line), nil
			continue
		}
		c.Longest = took(longest)
		y := chartHeight - 2 - int(float64(medians[i])/float64(max(longest, 1))*(chartHeight-4))
		line = append(line, fmt.Sprintf("%d,%d", x+barWidth/2, y))
	}
	c.Lines = appendLine(c.Lines, line)
	return c
}

// appendLine appends a line. It doubles a single point, so that it is visible.
func appendLine(lines, points []string) []string {
	switch len(points) {
	case 0:
		return lines
	case 1:
		points = append(points, points[0])
	}
	return append(lines, strings.Join(points, " "))
}

// scale returns the height of n: at least 2 if n is not 0, so that it is visible.
func scale(n, most int) int {
	if n == 0 {
		return 0
	}
	return max(n*chartHeight/most, 2)
}
