package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// How many of a webhook's newest deliveries are read to determine its health. This limits the cost
// of a page.
const (
	listSample = 200  // for each webhook in a list
	pageSample = 1000 // for the webhook's own page
)

// hours is the period that the health covers. It spans hours+1 clock hours, which the chart shows.
const hours = 24

// A healthView summarizes the attempts to reach a webhook in the last 24 hours.
type healthView struct {
	Attempts  int
	Succeeded int
	Rate      string // success rate: "99.2%"
	State     string // a class in style.css
	Median    string // median response time; empty if there was no response
	P95       string
	Partial   bool  // not all deliveries were read
	Since     *when // if Partial, when the oldest delivery read was published; nil if none was read
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

// health computes the health of a webhook from its newest deliveries. It reads no more deliveries
// than the number in most.
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
		times []time.Duration // response times
	)
	for _, delivery := range deliveries {
		for _, attempt := range delivery.Attempts {
			at := int(attempt.StartedAt.Sub(first) / time.Hour)
			if attempt.StartedAt.Before(from) || at >= len(each) || attempt.Class == webhooks.ClassExpired || attempt.Class == webhooks.ClassResource {
				continue
			}
			view.Attempts++
			each[at].attempts++
			if attempt.Class == "" {
				view.Succeeded++
				each[at].succeeded++
			}
			// Without a response, for example if the connection was refused, the duration is no
			// response time.
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

// maxSteps is the maximum number of store queries that newest makes. It needs several if deliveries
// are rare.
const maxSteps = 4

// newest returns the webhook's newest deliveries since from, up to the number in most. partial
// means that there may be more.
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

// percent returns part as a percentage of whole. It rounds down, so that only part == whole gives
// 100.
func percent(part, whole int) string {
	thousandths := part * 1000 / whole
	if thousandths%10 == 0 {
		return fmt.Sprintf("%d%%", thousandths/10)
	}
	return fmt.Sprintf("%d.%d%%", thousandths/10, thousandths%10)
}

// quantile returns the given percentile of times, which must be sorted.
func quantile(sorted []time.Duration, percentile int) time.Duration {
	return sorted[min(len(sorted)*percentile/100, len(sorted)-1)]
}

// An hour summarizes the attempts in one hour.
type hour struct {
	attempts  int
	succeeded int
	times     []time.Duration // response times
}

// The dimensions of a chart, in its own units.
const (
	barWidth    = 8
	barGap      = 2
	chartHeight = 48
	tickHours   = 6
)

// A chart shows how many attempts succeeded and failed in each clock hour, with the latest hour at
// the right, and the median response time as a line.
type chart struct {
	Width, Height int
	Bars          []bar
	Lines         []string // points of each run of consecutive hours with responses
	Most          int      // number of attempts at the top of the chart
	Longest       string   // response time at the top of the chart; empty if there is no line
	Ticks         []tick
}

// A tick is a label on the time axis, at the start of an hour.
type tick struct {
	Percent int    // position as a percentage of the width
	ISO     string // for scripts, which show the hour in the reader's time zone
	Label   string // the hour in UTC
}

// A bar is the bar of an hour in the chart. Succeeded is drawn below Failed.
type bar struct {
	X, Width              int
	SucceededY, Succeeded int
	FailedY, Failed       int
}

// draw draws the chart of consecutive hours. first is when the first hour begins.
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

// appendLine appends a line through points. It doubles a single point, to make it visible.
func appendLine(lines, points []string) []string {
	switch len(points) {
	case 0:
		return lines
	case 1:
		points = append(points, points[0])
	}
	return append(lines, strings.Join(points, " "))
}

// scale returns the height for n. The height is at least 2 unless n is 0, to keep it visible.
func scale(n, most int) int {
	if n == 0 {
		return 0
	}
	return max(n*chartHeight/most, 2)
}
