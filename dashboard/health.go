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

// hours is the period of the health.
const hours = 24

// A healthView summarizes the attempts of the last 24 hours at a webhook.
type healthView struct {
	Attempts  int
	Succeeded int
	Rate      string // of success: "99.2%"
	State     string // a mark of style.css
	Median    string
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
	return fmt.Sprintf("%s of %s in the last 24 hours succeeded; the median took %s",
		h.Rate, count(h.Attempts, "attempt"), h.Median)
}

// health computes the health of a webhook from up to most deliveries.
func (p *pages) health(c *call, webhookID string, most int) (healthView, error) {
	now := p.now()
	from := now.Add(-hours * time.Hour)
	deliveries, partial, err := p.newest(c, webhookID, from, most)
	if err != nil {
		return healthView{}, err
	}
	var (
		view  healthView
		each  [hours]hour
		times []time.Duration
	)
	for _, delivery := range deliveries {
		for _, attempt := range delivery.Attempts {
			at := int(attempt.StartedAt.Sub(from) / time.Hour)
			if at < 0 || at >= hours || attempt.Class == webhooks.ClassExpired {
				continue
			}
			times = append(times, attempt.Duration)
			each[at].times = append(each[at].times, attempt.Duration)
			if attempt.Class == "" {
				view.Succeeded++
				each[at].succeeded++
			}
		}
	}
	if view.Partial = partial; partial && len(deliveries) > 0 {
		view.Since = p.when(deliveries[len(deliveries)-1].PublishedAt)
	}
	view.Chart = draw(&each)
	if view.Attempts = len(times); view.Attempts == 0 {
		return view, nil
	}
	slices.Sort(times)
	view.Median, view.P95 = took(quantile(times, 50)), took(quantile(times, 95))
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

// newest returns up to most of the webhook's newest deliveries since from, and whether
// there may be more.
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
	succeeded int
	times     []time.Duration // of all attempts
}

// The dimensions of a chart, in its own units.
const (
	barWidth    = 8
	barGap      = 2
	chartWidth  = hours * (barWidth + barGap)
	chartHeight = 48
)

// A chart shows, for each of the last 24 hours with the latest at the right, how many
// attempts succeeded and failed, and their median time as a line.
type chart struct {
	Width, Height int
	Bars          []bar
	Lines         []string // points of each run of hours with attempts
	Longest       string   // the time at the top of the chart
}

// A bar is an hour. Succeeded is drawn below Failed.
type bar struct {
	X, Width              int
	SucceededY, Succeeded int
	FailedY, Failed       int
}

func draw(each *[hours]hour) chart {
	c := chart{Width: chartWidth, Height: chartHeight}
	most, longest := 0, time.Duration(0)
	var medians [hours]time.Duration
	for i := range each {
		most = max(most, len(each[i].times))
		if len(each[i].times) > 0 {
			slices.Sort(each[i].times)
			medians[i] = quantile(each[i].times, 50)
			longest = max(longest, medians[i])
		}
	}
	if most == 0 {
		return c
	}
	c.Longest = took(longest)
	var line []string
	for i, h := range each {
		x, all := i*(barWidth+barGap), len(h.times)
		if all == 0 {
			c.Lines, line = appendLine(c.Lines, line), nil
			continue
		}
		failed := scale(all-h.succeeded, most)
		succeeded := scale(h.succeeded, most)
		c.Bars = append(c.Bars, bar{
			X: x, Width: barWidth,
			SucceededY: chartHeight - succeeded, Succeeded: succeeded,
			FailedY: max(chartHeight-succeeded-failed, 0), Failed: failed,
		})
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
