package api

// maxName is the maximum length of a trainer's ID and name, in bytes.
const maxName = 4 << 10

// TrainerRequest reserves the server for a trainer.
type TrainerRequest struct {
	ID, Name string
	Try      bool // only ask whether the server is free
}

// DecodeTrainer decodes and validates the body of POST /v1/trainer.
func DecodeTrainer(data []byte) (*TrainerRequest, error) {
	r := &TrainerRequest{}
	if err := decode(data, r.fields()); err != nil {
		return nil, err
	}
	switch {
	case r.ID == "":
		return nil, Invalid("id", "no id, expected one that identifies the trainer")
	case len(r.ID) > maxName || len(r.Name) > maxName: // both are stored
		return nil, Invalid("", "id has %d bytes and name %d, expected at most %d each", len(r.ID), len(r.Name),
			maxName)
	}
	return r, nil
}

func (r *TrainerRequest) fields() []field {
	return []field{bind("id", &r.ID, "a string"), bind("name", &r.Name, "a string"),
		bind("try", &r.Try, "true or false")}
}
