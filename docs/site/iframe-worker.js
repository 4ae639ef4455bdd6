// The search runs in a Worker, which browsers refuse to pages that are opened as files. This stands in for it there: the
// worker's script runs in a hidden frame, whose postMessage leads to the page and back.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      this.waiting = [];
      frame.addEventListener("load", () => {
        const inner = frame.contentWindow;
        inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        const script = inner.document.createElement("script");
        script.src = new URL(url, location.href).href;
        script.addEventListener("load", () => {
          this.inner = inner;
          this.waiting.splice(0).forEach((data) => this.postMessage(data));
        });
        inner.document.head.append(script);
      }, { once: true });
      document.addEventListener("DOMContentLoaded", () => document.body.append(frame), { once: true });
      if (document.readyState !== "loading") document.body.append(frame);
    }

    postMessage(data) {
      if (this.inner) this.inner.dispatchEvent(new MessageEvent("message", { data }));
      else this.waiting.push(data);
    }
  };
}
