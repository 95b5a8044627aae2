// Package trainer runs the training loop: accumulate a step's gradients, update,
// evaluate, checkpoint.
//
// Run is the only loop. A step's work comes from a source: rollouts, which are
// trained while the rest of their step is still being sampled, or demonstrations.
// Both are packed into micro-batches without padding. Gradients accumulate as
// unnormalised sums, which an update divides once. With rollouts:
//
//	            prompts of one step
//	   data ────────────────────────────► producer ──► instance 1 ─┐
//	                                      (B tasks)──► instance 2  │ sampling with
//	                                         ▲    ──► …            │ version t
//	  trainer                                └──── answers ────────┘
//	   1 publish version t to all instances          │ scored as they return
//	   2 ◄──────── queue of finished groups ◄────────┘
//	     forward, backward, while others are still being sampled
//	   3 the step's last group is in: one update, version t+1
//
//	part        consumes           waits for               unblocked by
//	producer    prompts            a free instance         a response that ends
//	instances   requests           requests                the producer
//	trainer     finished groups    the next group          the producer
//	step t+1    the new weights    all groups of step t    the update
//
// It is Algorithm 1 of the Periodic Asynchrony paper. No weights change while a step
// is sampled, and a step ends only when its last group is trained. So every group is
// on-policy; the trainer checks each one.
//
// Metrics are recorded by name where they are measured, and merged over the
// mini-batches of a step into its line of metrics.jsonl.
package trainer
