package systemd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/godbus/dbus/v5"
)

// call calls a method of systemd's, and stores what it returns.
func (m *Manager) call(at dbus.ObjectPath, method string, arguments []any, results ...any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	began := time.Now()
	first := m.Patience
	if first == 0 {
		first = callPatience
	}
	wait := m.patience.next(began, first)
	if wait == 0 {
		return m.patience.silence(began)
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	connection, err := m.connect(ctx)
	if err == nil {
		m.mu.Unlock()
		err = ask(ctx, connection, at, method, arguments, results)
		m.mu.Lock()
	} else if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	silent := errors.Is(err, context.DeadlineExceeded)
	ended := time.Now()
	m.patience.ended(began, ended, silent)
	if errors.Is(err, errUnsent) && m.connection == connection {
		m.connection = nil
		go connection.Close() // it waits until the message is sent
	}
	if silent {
		err = fmt.Errorf("%w, for %v", m.patience.silence(ended), wait)
	}
	return err
}

// connect gives a connection to the system bus that is open. A bus that hangs accepts
// connections, and says nothing.
func (m *Manager) connect(ctx context.Context) (*dbus.Conn, error) {
	if m.connection != nil && m.connection.Connected() {
		return m.connection, nil
	}
	life, end := context.WithCancel(context.Background())
	connected := context.AfterFunc(ctx, end)
	connection, err := dbus.ConnectSystemBus(dbus.WithContext(life))
	if !connected() {
		return nil, fmt.Errorf("cannot connect to the system bus: %w", ctx.Err())
	}
	if err != nil {
		end()
		return nil, fmt.Errorf("cannot connect to the system bus: %w", err)
	}
	m.connection = connection
	return connection, nil
}

// errUnsent means that the bus does not read what it is sent.
var errUnsent = fmt.Errorf("the system bus takes no message: %w", context.DeadlineExceeded)

// sentPatience is how long a call may take to notice that its time is over.
const sentPatience = 100 * time.Millisecond

// ask calls a method until ctx ends. A message that the bus does not read blocks its
// sender, whatever ctx says.
func ask(ctx context.Context, connection *dbus.Conn, at dbus.ObjectPath, method string, arguments, results []any) error {
	ended := make(chan *dbus.Call, 1)
	go func() { ended <- connection.Object(service, at).CallWithContext(ctx, method, 0, arguments...) }()
	select {
	case call := <-ended:
		return call.Store(results...)
	case <-ctx.Done():
	}
	select {
	case call := <-ended:
		return call.Store(results...)
	case <-time.After(sentPatience):
		return errUnsent
	}
}
