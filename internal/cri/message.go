package cri

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Message builds an encoded message field by field.
type Message []byte

// Text adds a string; "" is left out, as its default.
func (m Message) Text(field protowire.Number, text string) Message {
	if text == "" {
		return m
	}
	return protowire.AppendString(protowire.AppendTag(m, field, protowire.BytesType), text)
}

// Number adds a whole number, an enumeration or a truth value (0 or 1).
func (m Message) Number(field protowire.Number, number uint64) Message {
	if number == 0 {
		return m
	}
	return protowire.AppendVarint(protowire.AppendTag(m, field, protowire.VarintType), number)
}

// Inner adds a message.
func (m Message) Inner(field protowire.Number, inner Message) Message {
	return protowire.AppendBytes(protowire.AppendTag(m, field, protowire.BytesType), inner)
}

// Map adds a map of strings.
func (m Message) Map(field protowire.Number, texts map[string]string) Message {
	for key, value := range texts {
		m = m.Inner(field, Message(nil).Text(1, key).Text(2, value))
	}
	return m
}

// fields calls visit for each field of an encoded message, with its bytes or its number.
func fields(message []byte, visit func(field protowire.Number, content []byte, number uint64) error) error {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return fmt.Errorf("not a protobuf message: %w", protowire.ParseError(n))
		}
		message = message[n:]
		var content []byte
		var number uint64
		switch kind {
		case protowire.BytesType:
			content, n = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(message)
		default:
			n = protowire.ConsumeFieldValue(field, kind, message)
		}
		if n < 0 {
			return fmt.Errorf("not a protobuf message: %w", protowire.ParseError(n))
		}
		message = message[n:]
		if err := visit(field, content, number); err != nil {
			return err
		}
	}
	return nil
}

// addTo adds an entry of a map.
func addTo(texts *map[string]string, entry []byte) error {
	var key, value string
	err := fields(entry, func(field protowire.Number, content []byte, _ uint64) error {
		switch field {
		case 1:
			key = string(content)
		case 2:
			value = string(content)
		}
		return nil
	})
	if *texts == nil {
		*texts = map[string]string{}
	}
	(*texts)[key] = value
	return err
}
