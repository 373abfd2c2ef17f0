package ingress

import (
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
)

// Senders says who sends to a receiver that listens, where its transport cannot show it.
type Senders string

const (
	// Anybody may send: a sender is an agent if it proves it, and else foreign.
	Anybody Senders = ""
	// OwnNode: who reaches the receiver runs on its node, and is foreign.
	OwnNode Senders = "node"
	// Agents: none but agents can reach the receiver. All that it takes is believed.
	Agents Senders = "agents"
)

const sendersKey = "senders"

// config is the configuration of a receiver that listens, and who sends to it.
type config struct {
	inner   component.Config
	senders Senders
}

// Unmarshal implements confmap.Unmarshaler: all but our key is the receiver's.
func (c *config) Unmarshal(conf *confmap.Conf) error {
	all := conf.ToStringMap()
	if senders, ok := all[sendersKey]; ok {
		text, _ := senders.(string)
		if c.senders = Senders(text); c.senders != OwnNode && c.senders != Agents {
			return fmt.Errorf("%s: %v: write %s or %s, or leave it out", sendersKey, senders, OwnNode, Agents)
		}
		delete(all, sendersKey)
	}
	return confmap.NewFromStringMap(all).Unmarshal(c.inner, confmap.WithForceUnmarshaler())
}

// Marshal implements confmap.Marshaler.
func (c config) Marshal(conf *confmap.Conf) error {
	if err := conf.Marshal(c.inner); err != nil {
		return err
	}
	if c.senders == Anybody {
		return nil
	}
	return conf.Merge(confmap.NewFromStringMap(map[string]any{sendersKey: string(c.senders)}))
}

// Validate implements confmap.Validator.
func (c *config) Validate() error { return confmap.Validate(c.inner) }
