package postgres

import (
	"context"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Connection defaults.
const (
	applicationName = "storageapi"
	connectTimeout  = 5 * time.Second
	pingTimeout     = 2 * time.Second // for pings of idle connections
	keepAlive       = 5 * time.Second
)

// prepare sets defaults for the pool of [Open] that make it detect a silent server early.
func prepare(config *pgxpool.Config, o *options) {
	c := config.ConnConfig
	if _, given := c.RuntimeParams["application_name"]; !given {
		c.RuntimeParams["application_name"] = applicationName
	}
	if config.PingTimeout == 0 {
		config.PingTimeout = pingTimeout
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	dialer := &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAlive, Interval: keepAlive, Count: 2},
		Control:         control,
	}
	c.DialFunc = dialer.DialContext
	if !o.quiet { // with a pooler, the next statement may use another server connection
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, ownSettings)
			return err
		}
	}
	config.BeforeClose = func(conn *pgx.Conn) {
		if conn.IsClosed() { // otherwise pgx would wait for the peer to close it as well
			_ = conn.PgConn().Conn().Close()
		}
	}
}
