// A conversation's messages as a tree: an edit or another answer is a sibling of what was there.

export class Tree {
  constructor(messages = []) {
    this.messages = new Map(messages.map((message) => [message.id, message]));
  }

  add(message) {
    this.messages.set(message.id, message);
  }

  get(id) {
    return this.messages.get(id);
  }

  /** From the first message to `leaf`. */
  path(leaf) {
    const path = [];
    for (let at = this.get(leaf); at && !path.includes(at); at = this.get(at.parent)) path.push(at);
    return path.reverse();
  }

  /** The messages with the same parent, oldest first; the message itself is among them. */
  siblings(message) {
    return this.children(message.parent);
  }

  children(parent) {
    return [...this.messages.values()].filter((m) => m.parent === parent).sort((a, b) => a.created - b.created);
  }

  /** The end of the branch below a message that was written to last. */
  leafBelow(message) {
    const newest = (from) => this.children(from.id).reduce((best, child) => later(best, newest(child)), from);
    return newest(message);
  }
}

const later = (a, b) => (b.created > a.created ? b : a);
