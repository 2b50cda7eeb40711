;; Lazy sequences, and functions that are compiled at run time, for some seconds: clojure.main rounds.clj SECONDS.
(def end (+ (System/nanoTime) (* 1000000000 (Long/parseLong (first *command-line-args*)))))
(defn sums [round]
  (->> (range 3000) (map #(* % round)) (filter odd?) (partition-all 7) (mapcat reverse) (group-by #(mod % 13))
       (reduce-kv (fn [sums key numbers] (assoc sums key (reduce + numbers))) {})))
(loop [round 0]
  (when (< (System/nanoTime) end)
    (sums round)
    (eval `(reduce + (map inc (range ~round (+ ~round 100)))))
    (recur (inc round))))
